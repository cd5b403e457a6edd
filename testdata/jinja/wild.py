# Writes cases as make.py does, but of templates made at random: expressions over the same variables, with filters,
# tests, methods, operators and subscripts, most of them on values that they were not made for.
# usage: wild.py NUMBER SEED > wild.json
import json
import os
import random
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make  # noqa: E402

NAMES = list(make.VARS) + ["undef"]
LITERALS = ["0", "1", "2", "-1", "3", "5", "10", "1.5", "0.5", "2.0", "-0.0", "1e20", "true", "false", "none", "''", "'a'", "'abc'", "'Ab c'",
            "'a,b'", "' x '", "'1'", "'1.5'", "'%s'", "'{}'", "[]", "{}", "()", "[1,2,3]", "['a','B']", "{'a':1}", "{'k':'v','z':[1]}",
            "(1,2)", "range(4)", "10**18", "'é日'", "'<b>'", "('<'|safe)", "dict(a=1)"]
FILTERS = """abs attr batch capitalize center count d default dictsort e escape filesizeformat first float forceescape format groupby indent int
    join last length list lower items map min max reject rejectattr replace reverse round safe select selectattr slice sort string striptags
    sum title trim truncate unique upper urlencode wordcount xmlattr tojson""".split()
TESTS = """odd even defined undefined filter test none boolean false true integer float lower upper string mapping number sequence iterable
    callable escaped""".split()
COMPARISONS = "divisibleby in eq equalto ne gt greaterthan lt lessthan ge le".split()
METHODS = """capitalize casefold center count endswith expandtabs find format index isalnum isalpha isascii isdecimal isdigit isidentifier
    islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex
    rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title upper zfill items keys values get copy fromkeys append
    pop real imag conjugate nothing""".split()
ARGUMENTS = {
    "default": ["boolean=true"], "round": ["method='floor'", "method='ceil'", "precision=1"], "indent": ["first=true", "blank=true", "width=2"],
    "sort": ["reverse=true", "case_sensitive=true", "attribute='name'"], "unique": ["attribute='age'"],
    "tojson": ["indent=2", "sort_keys=true", "ensure_ascii=true", "separators=(',',':')"],
    "map": ["attribute='name'", "'upper'", "'int'", "attribute='x.y',default=0", "'length'"],
    "selectattr": ["'x'", "'age','gt',26", "'name','string'"], "rejectattr": ["'x'", "'age','odd'"],
    "select": ["'odd'", "'string'", "'gt',1", ""], "reject": ["'none'", "'in',[1]", ""], "join": ["','", "', ',attribute='name'"],
    "groupby": ["'age'", "'x.y',default=1"], "batch": ["2", "2,'x'"], "slice": ["2", "3,'x'"], "truncate": ["5", "3,true", "5,leeway=0"],
    "replace": ["'a','b'", "'l','','1'", "1,2"], "int": ["5", "base=16"], "sum": ["attribute='age'", "start=1"],
    "dictsort": ["by='value'", "true", "reverse=true"], "attr": ["'upper'", "'name'"], "center": ["9"], "format": ["1", "'a',2"],
    "trim": ["'a'"], "min": ["attribute='age'"], "max": ["attribute='name'"],
}


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def atom(self):
        return self.r.choice(NAMES if self.r.random() < 0.5 else LITERALS)

    def piped(self, d):
        f, a = self.r.choice(FILTERS), ""
        if f in ARGUMENTS and self.r.random() < 0.7:
            a = "(" + self.r.choice(ARGUMENTS[f]) + ")"
        elif self.r.random() < 0.15:
            a = "(" + self.atom() + ")"
        return f"({self.expr(d)}) | {f}{a}"

    def tested(self, d):
        negated = self.r.choice(["", "not "])
        if self.r.random() < 0.3:
            return f"(({self.expr(d)}) is {negated}{self.r.choice(COMPARISONS)}({self.atom()}))"
        return f"(({self.expr(d)}) is {negated}{self.r.choice(TESTS)})"

    def sliced(self, d):
        # Of a name: slices of constants are folded by Jinja, which then forgives what it otherwise does not.
        if self.r.random() < 0.5:
            return f"({self.r.choice(NAMES)})[{self.r.choice(['1:', '::-1', ':2', '::2', '-2:', '3:1:-1'])}]"
        return f"({self.expr(d)})[{self.r.choice([self.atom(), '0', '-1'])}]"

    def expr(self, d):
        if d <= 0:
            return self.atom()
        d -= 1
        choice = self.r.choice
        return self.r.choices([
            lambda: self.atom(),
            lambda: self.piped(d),
            lambda: f"({self.expr(d)}).{choice(METHODS)}({', '.join(self.atom() for _ in range(choice([0, 0, 1, 1, 2])))})",
            lambda: f"({self.expr(d)} {choice(['+', '-', '*', '/', '//', '%', '~', '+', '~', '%'])} {self.expr(d)})",
            lambda: f"({self.expr(d)} {choice(['<', '>', '==', '!=', '<=', 'in', 'not in'])} {self.expr(d)})",
            lambda: self.tested(d),
            lambda: self.sliced(d),
            lambda: f"({self.expr(d)} if {self.expr(d)} else {self.expr(d)})",
            lambda: f"({self.expr(d)} {choice(['and', 'or'])} {self.expr(d)})",
            lambda: f"(not {self.expr(d)})",
            lambda: f"[{self.expr(d)}, {self.expr(d)}]",
            lambda: "{'a': " + self.expr(d) + "}",
        ], [18, 18, 14, 16, 8, 6, 6, 3, 3, 2, 3, 3])[0]()

    def template(self):
        x = self.expr(self.r.choice([1, 2, 2, 3]))
        return self.r.choices([
            "{{ " + x + " }}",
            "{% for v in " + x + " %}{{ v }}{{ loop.index }}{{ loop.last }},{% else %}E{% endfor %}",
            "{{ [" + x + "] }}|{{ (" + x + ") | tojson }}",
            "{% set v = " + x + " %}{{ v }}{{ v | string | length }}{{ 'T' if v else 'F' }}",
        ], [60, 15, 10, 15])[0]


class Late(BaseException):
    pass


def late(*_):
    raise Late


def main():
    number, seed = int(sys.argv[1]), int(sys.argv[2])
    maker, cases = Maker(seed), []
    signal.signal(signal.SIGALRM, late)
    while len(cases) < number:
        src = maker.template()
        signal.setitimer(signal.ITIMER_REAL, 1)
        try:
            c = make.case(src)
        except Late:
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        # Three of five errors are left out, for most templates fail; so are addresses and long texts.
        if "error" in c and maker.r.random() < 0.6 or " at 0x" in c.get("text", "") or len(c.get("text", "")) > 20000 or c.get("error") in ("RecursionError", "MemoryError"):
            continue
        cases.append(c)
    json.dump({"vars": make.VARS, "cases": cases}, sys.stdout, indent=0)
    print()
    print(len(cases), "cases,", sum("error" in c for c in cases), "errors", file=sys.stderr)


main()
