#!/bin/sh
# The host compiler with less optimization: programs of a long run compile two times faster. The last option counts.
exec g++ "$@" -O1
