# Plugins go to lathe-plugins beside the runtime, where it looks for them.
add_library(plugin_objects OBJECT EXCLUDE_FROM_ALL backends/plugin.c backends/json.c)
target_include_directories(plugin_objects PRIVATE include)
set_target_properties(plugin_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)

function(add_plugin name library)
  add_library(lathe_plugin_${name} MODULE backends/${name}.c $<TARGET_OBJECTS:plugin_objects>)
  target_include_directories(lathe_plugin_${name} PRIVATE include)
  target_link_libraries(lathe_plugin_${name} PRIVATE lathe_rt ${library} Threads::Threads m)
  set_target_properties(lathe_plugin_${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY
                        ${CMAKE_BINARY_DIR}/lathe-plugins BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/..")
  install(TARGETS lathe_plugin_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lathe-plugins)
endfunction()

add_plugin(npu "")                        # simulated: it needs no library
add_plugin(onnxruntime ${CMAKE_DL_LIBS})   # whose library is opened when a model is loaded

find_path(CBLAS_INCLUDE cblas.h)
find_library(OPENBLAS openblas)
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h)
find_library(DNNL dnnl)
mark_as_advanced(CBLAS_INCLUDE OPENBLAS DNNL_INCLUDE DNNL)
if(CBLAS_INCLUDE AND OPENBLAS)
  add_plugin(openblas ${OPENBLAS})
endif()
set(DNNL_VERSION_FILE ${DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h)
if(DNNL_INCLUDE AND DNNL AND EXISTS ${DNNL_VERSION_FILE})
  file(STRINGS ${DNNL_VERSION_FILE} DNNL_MAJOR REGEX "define DNNL_VERSION_MAJOR 2")   # version 3 has another interface
endif()
if(DNNL_MAJOR)
  add_plugin(dnnl ${DNNL})
endif()
