# SPDX-License-Identifier: BSD-3-Clause
"""The programs and tools of a build, and the options that their help lists."""
import functools
import json
import os
import re
import subprocess

# Programs whose first argument chooses a table of options.
PARTS = {'rpcbench': ('ipc', 'net', 'raw', 'tensor'), 'shmbench': ('allocation', 'lookup', 'transfer'),
         'soft-mlx5': ('', 'stat', 'faults'),
         'crpc-shm': ('list', 'clean')}
# What they cannot do without.
NEEDS = {'kvd': ['--name', 'x', '--keys', '9'], 'crpc-calibrate': ['--out', 'x'],
         'crpc-diff': ['before', 'after'], 'crpc-plot': ['file'], 'faults': ['off']}


def run(*cmd, **more):
    return subprocess.run(cmd, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **more)


class Program:
    def __init__(self, path):
        self.path, self.name = path, os.path.basename(path)
        self.help = run(path, '--help').stdout
        self.eal = '--eal-help' in self.help
        self.parts = PARTS.get(self.name, ('',))

    def command(self, part, *args):
        """The arguments with which a part of it runs."""
        return [self.path, *(('--no-huge', '--') if self.eal else ()), *([part] if part else []),
                *NEEDS.get(part or self.name, []), *args]

    @functools.lru_cache
    def help_of(self, part):
        return run(self.path, *([part] if part else []), '--help').stdout

    def options(self, part):
        """Of each option that the help lists: what its value is called, and its text."""
        text = self.help_of(part)
        if self.name == 'shmbench':  # One help has those of all.
            common, *rest = re.split(r'^of \S+(?: benchmarks)?:\n', text, flags=re.M)[1:]
            text = common + rest[self.parts.index(part)]
        found = {}
        option = r'^  (?:-\w, )?(--?[a-z0-9-]+)(?: ([^\s-]\S*))?(?: {2,}(\S.*(?:\n {8,}\S.*)*))?$'
        for m in re.finditer(option, text, re.M):
            found[m[1]] = ((m[2] or '').replace('[,...]', ''), re.sub(r'\s+', ' ', m[3] or ''))
        if not self.eal and part:  # "faults: of this context only"
            found = {k: v for k, v in found.items() if not re.match(r'\w+: ', v[1]) or v[1].startswith(part + ': ')}
        return found


def programs(source, build):
    """What is installed to be started, and what stands in usertools."""
    with open(os.path.join(build, 'meson-info', 'intro-installed.json')) as f:
        paths = {path for path, to in json.load(f).items() if os.path.basename(os.path.dirname(to)) == 'bin'}
    tools = os.path.join(source, 'usertools')
    paths |= {os.path.join(tools, name) for name in os.listdir(tools) if os.path.isfile(os.path.join(tools, name)) and
              os.access(os.path.join(tools, name), os.X_OK)}
    return [Program(path) for path in sorted({os.path.basename(path): path for path in sorted(paths)}.values())]
