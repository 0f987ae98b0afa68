#!/usr/bin/env python3
"""Serves a folder to browsers on this machine, with the headers that let its pages use several threads.

    examples/web/serve.py [FOLDER] [--port 8000]"""

import argparse
import functools
import http.server
import pathlib


class Handler(http.server.SimpleHTTPRequestHandler):
    """What a page needs to be cross-origin isolated, without which it has no memory that threads share."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm"}
    isolated = True

    def end_headers(self):
        if self.isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", default=pathlib.Path(__file__).resolve().parent, type=pathlib.Path)
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    if not args.folder.is_dir():
        parser.error(f"there is no folder '{args.folder}'")
    handler = functools.partial(Handler, directory=str(args.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", args.port), handler) as server:
        print(f"http://localhost:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
