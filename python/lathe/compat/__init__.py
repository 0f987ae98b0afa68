"""Standing in for other packages: `import lathe.compat.tvm` makes `import tvm` mean Lathe."""
