"""python -m lathe.driver.tvmc"""

import sys

from .main import main

sys.exit(main())
