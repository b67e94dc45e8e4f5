package flags

import (
	"fmt"
	"net/netip"
)

// Addr is an IP address to filter by. Without one, all are selected.
type Addr struct{ netip.Addr }

// UnmarshalText parses an IPv4 or IPv6 address.
func (a *Addr) UnmarshalText(s []byte) error {
	addr, err := netip.ParseAddr(string(s))
	if err != nil || addr.Zone() != "" {
		return fmt.Errorf("%q is not an IP address", s)
	}
	if addr.IsUnspecified() {
		return fmt.Errorf("%s is not the address of a connection", s)
	}
	a.Addr = addr.Unmap()
	return nil
}

// String returns the address, or "" if there is none.
func (a Addr) String() string {
	if !a.IsValid() {
		return ""
	}
	return a.Addr.String()
}

// Variable returns the address as in struct sock_ends, with IPv4-mapped IPv4, and zero for none.
func (a Addr) Variable() any {
	if !a.IsValid() {
		return [16]byte{}
	}
	return a.As16()
}
