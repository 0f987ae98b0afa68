"""Small random programs of functions as values, data types and match, as Relay text.  The same seed gives the same
program; every one is well typed and ends."""

import random

HEAD = """type L[A] { C(A, L[A]), N }
type O[A] { J(A), E, D(A, (A, O[A])) }
def @map[A, B](%f: fn (A) -> B, %l: L[A]) -> L[B] { match (%l) { C(%h, %t) => C(%f(%h), @map(%f, %t)), N => N() } }
def @fold[A, B](%f: fn (B, A) -> B, %b: B, %l: L[A]) -> B { match (%l) { C(%h, %t) => @fold(%f, %f(%b, %h), %t), N => %b } }
def @nothing() -> L[float32] { N() }
def @empty(%x: Tensor[(n), float32]) -> O[(float32, Tensor[(n), float32])] { E() }
def @id[A](%x: A) -> A { %x }
def @pair[A, B](%f: fn (A) -> B, %x: A) -> (A, B) { (%x, %f(%x)) }
"""
PAIR = "(float32, Tensor[(n), float32])"


class Program:
    """Types by letter: s scalar, v vector, p a pair of both, l list of scalars, o option of pairs, f function of
    scalars,
    g function of pairs."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = 0

    def text(self):
        body = self.make("p", [("%x", "v"), ("%k", "s")], self.random.randint(3, 7))
        return f"{HEAD}def @main(%x: Tensor[(n), float32], %k: float32) -> {PAIR} {{\n  {body}\n}}\n"

    def name(self):
        self.names += 1
        return f"%v{self.names}"

    def make(self, kind, env, depth):
        """An expression over the variables of env."""
        if depth <= 0 or self.random.random() < 0.15:
            return self.leaf(kind, env)
        less, pick = depth - 1, self.random.random()
        if pick < 0.12:
            bound, var = self.random.choice("svpflog"), self.name()
            return f"{{ let {var} = {self.make(bound, env, less)}; {self.make(kind, env + [(var, bound)], less)} }}"
        if pick < 0.22:
            cond = f"less({self.make('s', env, depth - 2)}, {self.make('s', env, depth - 2)})"
            return f"if ({cond}) {{ {self.make(kind, env, less)} }} else {{ {self.make(kind, env, less)} }}"
        if pick < 0.34:
            return self.match(kind, env, less)
        if pick < 0.38:
            return f"@id({self.make(kind, env, less)})"
        return self.random.choice(getattr(self, "ways_" + kind))(self, env, less)

    def leaf(self, kind, env):
        have = [name for name, k in env if k == kind]
        if have and (kind in "vfg" or self.random.random() < 0.8):
            return self.random.choice(have)
        if kind in "fg":
            return self.function(kind, env, 0)
        return {
            "s": f"{self.random.randint(0, 3)}f",
            "v": "%x",
            "p": f"({self.random.randint(0, 3)}f, %x)",
            "l": "@nothing()",
            "o": "@empty(%x)",
        }[kind]

    def function(self, kind, env, depth):
        var, of, ty = self.name(), "s" if kind == "f" else "p", "float32" if kind == "f" else PAIR
        return f"fn ({var}: {ty}) -> {ty} {{ {self.make(of, env + [(var, of)], depth)} }}"

    def match(self, kind, env, depth):
        a, b, c, d, e = (self.name() for _ in range(5))
        if self.random.random() < 0.5:
            value = self.make("l", env, depth)
            clauses = [(f"C({a}, {b})", [(a, "s"), (b, "l")]), ("N", [])]
            if self.random.random() < 0.4:
                clauses.insert(0, (f"C({c}, C(_, _))", [(c, "s")]))
            if self.random.random() < 0.3:
                clauses[-1] = ("_", [])
        else:
            value = self.make("o", env, depth)
            clauses = [
                (f"J({a})", [(a, "p")]),
                (f"D(({b}, _), ({c}, J(_)))", [(b, "s"), (c, "p")]),
                (f"D({d}, (_, {e}))", [(d, "p"), (e, "o")]),
                ("E", []),
            ]
            self.random.shuffle(clauses)
        return f"match ({value}) {{ {', '.join(f'{p} => {self.make(kind, env + names, depth)}' for p, names in clauses)} }}"

    def called(self, kind, env, depth):
        f = self.make(kind, env, depth)
        return f if f[0] == "%" else f"@id({f})"

    def folded(self, env, depth):
        a, b = self.name(), self.name()
        body = self.make("s", env + [(a, "s"), (b, "s")], depth - 1)
        return f"@fold(fn ({a}: float32, {b}: float32) -> float32 {{ {body} }}, {self.make('s', env, depth - 1)}, {self.make('l', env, depth)})"

    ways_s = [
        lambda self, env, d: f"add({self.make('s', env, d)}, {self.make('s', env, d)})",
        lambda self, env, d: f"subtract({self.make('s', env, d)}, {self.make('s', env, d)})",
        lambda self, env, d: f"{self.called('f', env, d)}({self.make('s', env, d)})",
        lambda self, env, d: f"sum({self.make('v', env, d)})",
        lambda self, env, d: self.folded(env, d),
        lambda self, env, d: f"@id({self.make('p', env, d)}).0",
    ]
    ways_v = [
        lambda self, env, d: f"add({self.make('v', env, d)}, {self.make('s', env, d)})",
        lambda self, env, d: f"nn.relu(subtract({self.make('v', env, d)}, {self.make('v', env, d)}))",
        lambda self, env, d: f"@id({self.make('p', env, d)}).1",
    ]
    ways_p = [
        lambda self, env, d: f"({self.make('s', env, d)}, {self.make('v', env, d)})",
        lambda self, env, d: f"{self.called('g', env, d)}({self.make('p', env, d)})",
        lambda self, env, d: f"@id(@pair({self.make('g', env, d)}, {self.make('p', env, d)}).1)",
    ]
    ways_f = [lambda self, env, d: self.function("f", env, d)]
    ways_g = [lambda self, env, d: self.function("g", env, d)]
    ways_l = [
        lambda self, env, d: f"C({self.make('s', env, d)}, {self.make('l', env, d)})",
        lambda self, env, d: f"@map({self.make('f', env, d)}, {self.make('l', env, d)})",
    ]
    ways_o = [
        lambda self, env, d: f"J({self.make('p', env, d)})",
        lambda self, env, d: f"D({self.make('p', env, d)}, ({self.make('p', env, d)}, {self.make('o', env, d)}))",
    ]
