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
extras=test,lint,notebooks,moses

suits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in ((3, 10), (3, 11)))' \
        >/dev/null 2>&1
}

find_python() {
    # A name on the PATH may be a shim for a version that is not active: so each is run.
    for candidate in python3.11 python3.10 python3 python \
        "$HOME"/.pyenv/versions/3.11.*/bin/python "$HOME"/.pyenv/versions/3.10.*/bin/python; do
        if suits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
}

refuse() {
    echo "$1" >&2
    echo "graphformer needs Python 3.11 or 3.10, with its venv module. To get one:" >&2
    echo "  Debian, Ubuntu:  apt-get install python3.11 python3.11-venv" >&2
    echo "  macOS:           brew install python@3.11" >&2
    echo "  anywhere:        pyenv install 3.11" >&2
    echo "then, if it is not on the PATH: make venv PYTHON=/path/to/python3.11" >&2
    exit 1
}

version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

made_from() { (pwd && cat setup.cfg pyproject.toml constraints.txt tools/venv.sh) | cksum; }

if [ -n "${PYTHON:-}" ] && ! suits "$PYTHON"; then
    refuse "PYTHON=$PYTHON does not run, is another version, or lacks venv or ensurepip."
fi

# Start anew where the environment is half made, or its Python is gone or not the one asked for.
if [ ! -e "$stamp" ] || ! suits "$python" ||
    { [ -n "${PYTHON:-}" ] && [ "$(version "$PYTHON")" != "$(version "$python")" ]; }; then
    base=${PYTHON:-$(find_python)}
    [ -n "$base" ] || refuse "No suitable Python found: tried python3.11, python3.10, python3, python and pyenv's."
    echo "Making $venv with Python $(version "$base") ($base)"
    rm -rf "$venv"
    "$base" -m venv "$venv"
elif [ "$(cat "$stamp")" = "$(made_from)" ]; then
    exit 0
else
    echo "Bringing $venv up to date"
    rm -f "$stamp"
fi

pip() { "$python" -m pip --disable-pip-version-check "$@"; }

# torch first and alone: where a CPU build lies on disk it is taken, and not changed after that.
pip install --no-input -c constraints.txt "$(grep '^torch==' constraints.txt)"
pip install --no-input -c constraints.txt -e ".[$extras]"

made_from >"$stamp.new"
mv "$stamp.new" "$stamp"
echo "$venv is ready: Python $(version "$python")"
