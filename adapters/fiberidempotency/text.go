package fiberidempotency

import (
	"net"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v3"
)

// A text is where strings are made that stay when fasthttp uses the memory again that they are copied from. They
// are cut from a block, which is never written to twice: it stays for as long as one of its strings does.
type text struct{ block strings.Builder }

// blockSize is the size of a block. It is small, because each of its strings keeps those of other requests in memory.
const blockSize = 2 << 10

// room makes sure that n bytes fit into the block, and returns where they begin.
func (t *text) room(n int) (start int) {
	if t.block.Cap()-t.block.Len() < n {
		t.block = strings.Builder{}
		t.block.Grow(max(n, blockSize))
	}
	return t.block.Len()
}

// copy returns bytes as a string.
func (t *text) copy(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	start := t.room(len(b))
	t.block.Write(b)
	return t.block.String()[start:]
}

// pattern returns what events call a route.
func (t *text) pattern(c fiber.Ctx) string {
	method, path := c.Method(), c.FullPath()
	start := t.room(len(method) + len(" ") + len(path))
	t.block.WriteString(method)
	t.block.WriteByte(' ')
	t.block.WriteString(path)
	return t.block.String()[start:]
}

// address returns the text of an address, as its method String does.
func (t *text) address(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || len(tcp.IP) == 0 {
		return a.String()
	}
	of := tcp.AddrPort()
	var room [64]byte
	return t.copy(netip.AddrPortFrom(of.Addr().Unmap(), of.Port()).AppendTo(room[:0]))
}
