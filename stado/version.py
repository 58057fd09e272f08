"""The version of everything that this distribution installs."""

VERSION = "0.1.0"
