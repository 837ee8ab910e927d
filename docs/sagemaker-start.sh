#!/bin/bash
# Start script ("life-cycle configuration") of a SageMaker notebook instance. UNTESTED: nobody here has one.
# It runs as root at every start and must end within five minutes, so the installation goes on in the background.
set -euo pipefail

REPOSITORY="${LOCKSTEP_REPOSITORY:-}" # address of your clone, for git: set it here
HOME_OF_USER=~ec2-user/SageMaker # outlives a restart of the instance
LOG="$HOME_OF_USER/lockstep-setup.log"

if [ -z "$REPOSITORY" ]; then
    echo "set REPOSITORY in this script to the address of your clone of Lockstep" >&2
    exit 1
fi

SETUP_SCRIPT=$(mktemp)
chmod 644 "$SETUP_SCRIPT" # the user reads it
cat > "$SETUP_SCRIPT" <<'SETUP'
set -euo pipefail
cd "$1"
[ -d lockstep ] || git clone "$2" lockstep
cd lockstep

# Python 3.11 or 3.12; where the image has neither, one of conda's.
python=$(command -v python3.11 || command -v python3.12 || true)
if [ -z "$python" ]; then
    [ -x "$1/python311/bin/python" ] || conda create --yes --prefix "$1/python311" python=3.11
    python="$1/python311/bin/python"
fi

make PYTHON="$python" .venv/.ready # what `make reproduce` does first; nothing if it stands already
.venv/bin/python -m ipykernel install --user --name lockstep --display-name Lockstep
.venv/bin/lockstep doctor || true  # what this machine lacks is no reason to fail
SETUP

nohup sudo -u ec2-user -i bash "$SETUP_SCRIPT" "$HOME_OF_USER" "$REPOSITORY" > "$LOG" 2>&1 &
