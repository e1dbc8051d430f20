#!/bin/sh
# Writes the named files as C++: embed_headers.sh OUTPUT FILE...
# One line `{"name", R"(text)"},` a file, for csrc/software/stand_in_headers.cc to include.
set -eu
output=$1
shift
for file in "$@"; do
  if grep -q ')stand_in"' "$file"; then
    echo "$file: contains the end of the raw string it would become" >&2
    exit 1
  fi
  printf '{"%s", R"stand_in(' "$(basename "$file")"
  cat "$file"
  printf ')stand_in"},\n'
done > "$output"
