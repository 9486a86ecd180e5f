"""What a link carries, measured by plain sockets: the receiver listens, the sender connects.

    link_probe.py receive PORT
    link_probe.py send ADDRESS PORT BYTES      # one way
    link_probe.py both ADDRESS PORT BYTES      # both ways at the same time

The sender prints one JSON line: seconds until the last byte was acknowledged by the other program,
and half of a round trip of one byte (median of 50)."""

import json
import socket
import statistics
import sys
import threading
import time

CHUNK = 1 << 18


def receive_all(connection, count):
    buffer = memoryview(bytearray(CHUNK))
    while count:
        got = connection.recv_into(buffer, min(count, CHUNK))
        if got == 0:
            raise SystemExit("link_probe.py: the other side closed the connection")
        count -= got


def send_all(connection, count):
    block = bytes(CHUNK)
    while count:
        part = min(count, CHUNK)
        connection.sendall(block[:part])
        count -= part


def receive(port):
    with socket.create_server(("", port)) as server:
        connection = server.accept()[0]
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        order = b""
        while not order.endswith(b"\n"):
            order += connection.recv(1)
        mode, count = order.decode().split()
        for _ in range(50):
            receive_all(connection, 1)
            connection.sendall(b"x")
        sender = None
        if mode == "both":
            sender = threading.Thread(target=send_all, args=(connection, int(count)))
            sender.start()
        receive_all(connection, int(count))
        if sender:
            sender.join()
        connection.sendall(b"x")


def send(mode, address, port, count):
    for attempt in range(100):
        try:
            connection = socket.create_connection((address, port))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    else:
        raise SystemExit(f"link_probe.py: nobody listens at {address}:{port}")
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"{mode} {count}\n".encode())
        trips = []
        for _ in range(50):
            before = time.perf_counter()
            connection.sendall(b"x")
            receive_all(connection, 1)
            trips.append(time.perf_counter() - before)
        before = time.perf_counter()
        sender = threading.Thread(target=send_all, args=(connection, count))
        sender.start()
        receive_all(connection, count + 1 if mode == "both" else 1)
        sender.join()
        seconds = time.perf_counter() - before
    print(json.dumps({"seconds": seconds, "latency_s": statistics.median(trips) / 2}))


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(int(sys.argv[2]))
    else:
        send(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
