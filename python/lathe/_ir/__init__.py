"""What all IRs share and stand on: modules of functions, passes, structural comparison.  lathe.ir shows it."""
