"""The source of a reward that can do what rewards should not."""

REWARD = '''
import json, os, re, subprocess, sys, time
from pathlib import Path

print("imported", flush=True)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError


def reward(problem, response):
    """The response says what to do."""
    print('[1.0, "correct", ""]', flush=True)
    Path("pid").write_text(str(os.getpid()))
    match response.split():
        case ["hang"]:
            time.sleep(60)
        case ["regex"]:  # holds the interpreter's lock
            re.match("(a+)+$", "a" * 40 + "b")
        case ["child"]:
            child = subprocess.Popen(["sleep", "60"])
            Path("child_pid").write_text(str(child.pid))
            time.sleep(60)
        case ["exit"]:
            os._exit(3)
        case ["crash"]:
            os.kill(os.getpid(), 11)
        case ["memory"]:
            return float(len(bytearray(2 << 30)) > 0)
        case ["print"]:
            os.write(1, b"[1.0]")
            sys.__stdout__.write("{")
            subprocess.run(["echo", "[1.0]"])
        case ["read"]:
            return float(len(sys.stdin.read()))
        case ["raise"]:
            raise ValueError("no\\nsuch unit")
        case ["unprintable"]:
            raise Unprintable
        case ["system_exit"]:
            sys.exit(0)
        case ["none"]:
            return None
        case ["nan"]:
            return float("nan")
        case ["infinite"]:
            return float("inf")
        case ["text"]:
            return "1"
        case ["list"]:
            return [1]
        case ["true"]:
            return True
        case ["problem"]:
            return problem == {"id": "p", "problem": "37+58=", "answer": "95"}
        case ["value", number, pause]:
            time.sleep(float(pause))
            return float(number)
    return 0.0
'''
