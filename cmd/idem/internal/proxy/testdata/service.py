"""A service that knows nothing of idempotency, as service.cjs is one."""
import http.server
import json
import random
import sys
import time

LEDGER, WORK = sys.argv[1], float(sys.argv[2]) / 1000


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        charge = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["id"]
        time.sleep(WORK)
        with open(LEDGER, "a") as ledger:
            ledger.write(charge + "\n")
        time.sleep(WORK)
        answer = json.dumps({"id": charge, "charge": random.random()}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # a client that was killed


server = Server(("127.0.0.1", 0), Service)
print(server.server_address[1], flush=True)
server.serve_forever()
