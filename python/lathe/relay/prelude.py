"""Data types and functions that many programs start from: lists, options, trees.

    p = Prelude(mod)                             # mod knows List, Option, Tree and the functions below
    List, cons, nil = mod.get_type("List")
    total = mod.get_global_var("foldl")
"""

from __future__ import annotations

from typing import Any, List, Optional

from .. import error
from .._ffi import WORLD, call
from .._ir.module import IRModule
from .parser import parse

TEXT = """
type List[A] { Cons(A, List[A]), Nil }
type Option[A] { Some(A), None }
type Tree[A] { Rose(A, List[Tree[A]]) }

def @id[A](%x: A) -> A { %x }
def @compose[A, B, C](%f: fn (B) -> C, %g: fn (A) -> B) -> fn (A) -> C { fn (%x: A) -> C { %f(%g(%x)) } }
def @hd[A](%xs: List[A]) -> A { match? (%xs) { Cons(%x, _) => %x } }
def @tl[A](%xs: List[A]) -> List[A] { match? (%xs) { Cons(_, %rest) => %rest } }
def @length[A](%xs: List[A]) -> int32 { @foldl(fn (%n: int32, %x: A) -> int32 { add(%n, 1) }, 0, %xs) }
def @nth[A](%xs: List[A], %n: int32) -> A { if (equal(%n, 0)) { @hd(%xs) } else { @nth(@tl(%xs), subtract(%n, 1)) } }
def @update[A](%xs: List[A], %n: int32, %v: A) -> List[A] {
  if (equal(%n, 0)) { Cons(%v, @tl(%xs)) } else { Cons(@hd(%xs), @update(@tl(%xs), subtract(%n, 1), %v)) }
}
def @map[A, B](%f: fn (A) -> B, %xs: List[A]) -> List[B] {
  match (%xs) { Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)), Nil => Nil() }
}
def @filter[A](%f: fn (A) -> bool, %xs: List[A]) -> List[A] {
  match (%xs) { Cons(%x, %rest) => if (%f(%x)) { Cons(%x, @filter(%f, %rest)) } else { @filter(%f, %rest) }, Nil => Nil() }
}
def @zip[A, B](%xs: List[A], %ys: List[B]) -> List[(A, B)] {
  match ((%xs, %ys)) { (Cons(%x, %xrest), Cons(%y, %yrest)) => Cons((%x, %y), @zip(%xrest, %yrest)), _ => Nil() }
}
def @foldl[A, B](%f: fn (A, B) -> A, %acc: A, %xs: List[B]) -> A {
  match (%xs) { Cons(%x, %rest) => @foldl(%f, %f(%acc, %x), %rest), Nil => %acc }
}
def @foldr[A, B](%f: fn (A, B) -> B, %init: B, %xs: List[A]) -> B {
  match (%xs) { Cons(%x, %rest) => %f(%x, @foldr(%f, %init, %rest)), Nil => %init }
}
def @foldr1[A](%f: fn (A, A) -> A, %xs: List[A]) -> A {
  match? (%xs) { Cons(%x, Nil) => %x, Cons(%x, %rest) => %f(%x, @foldr1(%f, %rest)) }
}
def @sum(%xs: List[int32]) -> int32 { @foldl(fn (%a: int32, %b: int32) -> int32 { add(%a, %b) }, 0, %xs) }
def @concat[A](%xs: List[A], %ys: List[A]) -> List[A] {
  @foldr(fn (%x: A, %rest: List[A]) -> List[A] { Cons(%x, %rest) }, %ys, %xs)
}
def @rev[A](%xs: List[A]) -> List[A] { @foldl(fn (%done: List[A], %x: A) -> List[A] { Cons(%x, %done) }, Nil(), %xs) }
def @map_accuml[A, B, C](%f: fn (A, B) -> (A, C), %init: A, %xs: List[B]) -> (A, List[C]) {
  let %both = @foldl(fn (%acc: (A, List[C]), %x: B) -> (A, List[C]) {
    let %step = %f(%acc.0, %x);
    (%step.0, Cons(%step.1, %acc.1))
  }, (%init, Nil()), %xs);
  (%both.0, @rev(%both.1))
}
def @unfoldl[A, B](%f: fn (A) -> Option[(A, B)], %seed: A, %xs: List[B]) -> List[B] {
  match (%f(%seed)) { Some((%next, %x)) => @unfoldl(%f, %next, Cons(%x, %xs)), None => %xs }
}
def @tmap[A, B](%f: fn (A) -> B, %t: Tree[A]) -> Tree[B] {
  match (%t) { Rose(%x, %children) => Rose(%f(%x), @map(fn (%c: Tree[A]) -> Tree[B] { @tmap(%f, %c) }, %children)) }
}
def @size[A](%t: Tree[A]) -> int32 {
  match (%t) { Rose(_, %children) => add(1, @sum(@map(fn (%c: Tree[A]) -> int32 { @size(%c) }, %children))) }
}
def @iterate[A](%f: fn (A) -> A, %n: int32) -> fn (A) -> A {
  if (equal(%n, 0)) { fn (%x: A) -> A { %x } } else { @compose(%f, @iterate(%f, subtract(%n, 1))) }
}
"""


class Prelude:
    """Adds the prelude to a module, and finds what is in it."""

    def __init__(self, mod: Optional[IRModule] = None):
        self.mod = mod if mod is not None else IRModule()
        text = parse(TEXT, "prelude.relay")
        for header in call("module_data", WORLD, text):
            call("module_add_data", self.mod, header)
        for name in text.get_global_vars():
            self.mod[name] = text[name]

    def get_type(self, name: str) -> List[Any]:
        """The name of a data type and its constructors."""
        return self.mod.get_type(name)

    def get_ctor(self, ty_name: str, canonical: str, dtype: Any = None) -> Any:
        """A constructor by name."""
        for c in self.get_type(ty_name)[1:]:
            if c.name_hint.lower() == canonical.lower():
                return c
        raise error.NotFoundError(f"type '{ty_name}' has no constructor '{canonical}'")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "mod" or name not in self.mod:
            raise AttributeError(f"the prelude has no '{name}'")
        return self.mod.get_global_var(name)
