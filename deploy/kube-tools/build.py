"""Build kube-scheduler and kube-apiserver from Go modules, once per machine, for the tests that run the real ones.

`go install k8s.io/kubernetes/...` is refused (its module has replace lines), so a module of our own requires it and
points each of its staging modules to the published one. Needs Go 1.26 or newer, 5 GB and, on two cores, twenty minutes.
etcd comes from Debian's package, unpacked beside them; nothing is installed.

    python deploy/kube-tools/build.py ~/.cache/slomo/kube     then     SLOMO_KUBE_BIN=~/.cache/slomo/kube/bin
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

KUBERNETES, STAGING = "v1.36.3", "v0.36.3"
PROGRAMS = ("kube-scheduler", "kube-apiserver")


def run(command: list[str], folder: Path, **extra: str) -> str:
    """Run a command and return what it printed; its errors go to ours."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **extra}, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def write_module(folder: Path) -> None:
    """Write go.mod with one replace line per staging module of Kubernetes, and the import of both programs."""
    told = json.loads(run(["go", "mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}"], folder))
    text = Path(told["GoMod"]).read_text(encoding="utf-8")
    names = sorted(set(re.findall(r"^\s*(?:replace\s+)?(k8s\.io/\S+)\s+=>\s+\./staging", text, flags=re.M)))
    if not names:  # the published .mod has no replace lines: its own requirements name them, at v0.0.0
        names = sorted(set(re.findall(r"^\s*(k8s\.io/\S+)\s+v0\.0\.0", text, flags=re.M)))
    replaced = "".join(f"replace {name} => {name} {STAGING}\n" for name in names)
    lines = (
        f"module slomo/kube-tools\n\ngo 1.26.0\n\ngodebug default=go1.26\n\nrequire k8s.io/kubernetes {KUBERNETES}\n\n"
    )
    (folder / "go.mod").write_text(lines + replaced, encoding="utf-8")
    imports = "".join(f'\t_ "k8s.io/kubernetes/cmd/{name}"\n' for name in PROGRAMS)
    (folder / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\nimport (\n{imports})\n", encoding="utf-8")


def main() -> None:
    """Download, build, unpack etcd."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path.home() / ".cache/slomo/kube").resolve()
    binaries = folder / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    write_module(folder)
    run(["go", "mod", "tidy"], folder)
    if "--download-only" in sys.argv:
        return
    for name in PROGRAMS:
        if not (binaries / name).exists():
            out = str(binaries / name)
            build = ["go", "build", "-o", out, "-ldflags", "-s -w", f"k8s.io/kubernetes/cmd/{name}"]
            run(build, folder, CGO_ENABLED="0")
    if not (binaries / "etcd").exists():
        run(["apt-get", "download", "etcd-server"], folder)
        package = next(folder.glob("etcd-server_*.deb"))
        run(["dpkg", "-x", str(package), str(folder / "etcd")], folder)
        (binaries / "etcd").symlink_to(folder / "etcd/usr/bin/etcd")
    sys.stdout.write(f"SLOMO_KUBE_BIN={binaries}\n")


if __name__ == "__main__":
    main()
