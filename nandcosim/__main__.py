"""``python -m nandcosim``."""

from nandcosim.cli import main

if __name__ == "__main__":
    main()
