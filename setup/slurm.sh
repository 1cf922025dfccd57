#!/usr/bin/env bash
# Makes sure that SLURM and munge are installed, for the tests of the job queue; quiet when they
# are. The tests start daemons of their own; nothing is configured or started here. Without the
# right to install, says so and succeeds: the tests are then skipped.
set -euo pipefail

PATH="$PATH:/sbin:/usr/sbin"
have() { command -v slurmctld && command -v slurmd && command -v munged && command -v sbatch; }

have >/dev/null && exit 0

skip() {
  echo "setup: $1; the tests of the job queue will be skipped" >&2
  exit 0
}

command -v apt-get >/dev/null || skip "no SLURM, and this is no Debian or Ubuntu system"
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  skip "no SLURM, and no right to install it (sudo apt-get install slurm-wlm munge)"
fi
echo "setup: installing Debian's slurm-wlm and munge for the tests of the job queue"
# Debian's units start SLURM's daemons only where /etc/slurm/slurm.conf exists.
{
  "${as_root[@]}" apt-get update -qq &&
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null
} || skip "SLURM could not be installed"
have >/dev/null || skip "SLURM was installed but is not found"
