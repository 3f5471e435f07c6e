"""How C, C++ and Python call the functions of a program."""
