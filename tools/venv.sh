#!/bin/sh
# Makes the virtual environment that `make` works with, or brings it up to date; called by
# `make venv`. Does nothing where it is complete and nothing it is made from has changed.
#
# From the environment: VENV, its folder (default .venv); PYTHON, the Python to make it with.
set -eu

cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
python=$venv/bin/python
# Written last: an environment without it is half made. It holds the sum of what the environment
# was made from, and this folder's path, for an editable install points to it.
stamp=$venv/complete
extras=test,lint,notebooks,moses,tensorboard

suits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in ((3, 10), (3, 11)))' \
        >/dev/null 2>&1
}

# A name on the PATH may be a shim for a version that is not active, so each candidate is run, and
# pyenv's folders are looked into as well.
resolve() {
    for candidate in "$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/"$1"; do
        if suits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
}

find_python() {
    for name in python3.11 python3.10 python3 python; do
        found=$(resolve "$name")
        if [ -n "$found" ]; then
            echo "$found"
            return
        fi
    done
}

refuse() {
    echo "$1" >&2
    echo "graphformer needs Python 3.11 or 3.10, with its venv module. To get one:" >&2
    echo "  Debian, Ubuntu:  apt-get install python3.11 python3.11-venv" >&2
    echo "  macOS:           brew install python@3.11" >&2
    echo "  anywhere:        pyenv install 3.11, or: uv python install 3.11" >&2
    echo "then, if it is not on the PATH: make venv PYTHON=/path/to/python3.11" >&2
    exit 1
}

version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

made_from() { (pwd && cat setup.cfg pyproject.toml constraints.txt tools/venv.sh) | cksum; }

base=
if [ -n "${PYTHON:-}" ]; then
    base=$(resolve "$PYTHON")
    [ -n "$base" ] || refuse "PYTHON=$PYTHON does not suit: $("$PYTHON" -V 2>&1 | head -n 1)"
fi

# Start anew where the environment is half made, or its Python is gone or not the one asked for.
if [ ! -e "$stamp" ] || ! suits "$python" ||
    { [ -n "$base" ] && [ "$(version "$base")" != "$(version "$python")" ]; }; then
    base=${base:-$(find_python)}
    [ -n "$base" ] || refuse "Found none of python3.11, python3.10, python3, python that suits."
    echo "Making $venv with Python $(version "$base") ($base)"
    rm -rf "$venv"
    "$base" -m venv "$venv"
elif [ "$(cat "$stamp")" = "$(made_from)" ]; then
    exit 0
else
    echo "Bringing $venv up to date"
    rm -f "$stamp"
fi

install() {
    "$python" -m pip install --quiet --no-input --disable-pip-version-check -c constraints.txt "$@"
}

# torch first and alone: where a CPU build lies on disk it is taken, and not changed after that.
torch=$(grep '^torch==' constraints.txt)
echo "Installing $torch: the largest part, up to several minutes where a CUDA build is fetched"
install "$torch"
echo "Installing graphformer and the rest"
install -e ".[$extras]"

made_from >"$stamp.new"
mv "$stamp.new" "$stamp"
echo "$venv is ready: Python $(version "$python")"
