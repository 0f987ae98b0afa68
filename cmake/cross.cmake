# Builds Lathe for the other architecture: cmake -DCMAKE_TOOLCHAIN_FILE=cmake/cross.cmake -DLATHE_SYSROOT=FOLDER …
# CROSS_ARCH is aarch64 or x86_64 (default: the one this machine is not).  LATHE_SYSROOT is the folder that
# `tools/setup cross` fills with Debian's packages of that architecture; the C library comes with the cross compiler.
cmake_host_system_information(RESULT HOST QUERY OS_PLATFORM)
if(HOST MATCHES "aarch64|arm64")
  set(CROSS_ARCH x86_64 CACHE STRING "the architecture to build for")
else()
  set(CROSS_ARCH aarch64 CACHE STRING "the architecture to build for")
endif()
set(LATHE_SYSROOT "" CACHE PATH "Debian's packages of that architecture, unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CROSS_ARCH LATHE_SYSROOT)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CROSS_ARCH})
set(CMAKE_C_COMPILER ${CROSS_ARCH}-linux-gnu-gcc)
set(CMAKE_FIND_ROOT_PATH ${LATHE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE ${CROSS_ARCH}-linux-gnu)
set(CROSS_LIBRARIES ${LATHE_SYSROOT}/usr/lib/${CROSS_ARCH}-linux-gnu)
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT
      "-L${CROSS_LIBRARIES} -Wl,-rpath-link,${CROSS_LIBRARIES}:${LATHE_SYSROOT}/lib/${CROSS_ARCH}-linux-gnu")
endforeach()
