// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package netkern

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"bawn/internal/netplan"
)

// cgroupIDs gives the kernel's number for each cgroup that a plan names by its
// path.
type cgroupIDs map[string]uint64

// A translator turns terms into the kernel's expressions. It keeps what the
// rule has matched already, so that each dependency (TCP needs its protocol
// checked) is stated once, as nft does.
type translator struct {
	ids    cgroupIDs
	sets   map[string]*nftables.Set
	out    []expr.Any
	family netplan.Family
	proto  netplan.Proto
}

// register gives the kernel's name of the n-th 32-bit register in the form
// that the kernel itself reports.
func register(n uint32) uint32 {
	if n%4 == 0 {
		return unix.NFT_REG_1 + n/4
	}
	return unix.NFT_REG32_00 + n
}

func (t *translator) add(e ...expr.Any) { t.out = append(t.out, e...) }

func (t *translator) equal(data []byte) {
	t.add(&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: data})
}

func (t *translator) needFamily(f netplan.Family) {
	if t.family == f {
		return
	}
	t.family = f
	value := byte(unix.NFPROTO_IPV4)
	if f == netplan.IPv6 {
		value = unix.NFPROTO_IPV6
	}
	t.add(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: unix.NFT_REG_1})
	t.equal([]byte{value})
}

func (t *translator) needProto(p netplan.Proto) {
	if t.proto == p {
		return
	}
	t.proto = p
	t.add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1})
	t.equal([]byte{byte(p)})
}

// rule translates one rule.
func (t *translator) rule(r netplan.Rule) ([]expr.Any, error) {
	t.out, t.family, t.proto = nil, 0, 0
	for _, term := range r {
		if err := t.term(term); err != nil {
			return nil, fmt.Errorf("rule %q: %w", r, err)
		}
	}
	return t.out, nil
}

func (t *translator) term(term netplan.Term) error {
	switch v := term.(type) {
	case netplan.Family:
		t.needFamily(v)
	case netplan.Proto:
		t.needProto(v)
	case netplan.To:
		t.prefix(netip.Prefix(v), 16, 24)
	case netplan.From:
		t.prefix(netip.Prefix(v), 12, 8)
	case netplan.ToPort:
		t.needProto(netplan.TCP)
		t.payload(unix.NFT_REG_1, expr.PayloadBaseTransportHeader, 2, 2)
		t.equal(binaryutil.BigEndian.PutUint16(uint16(v)))
	case netplan.Resetting:
		t.resetting()
	case netplan.Owner:
		t.owner(v)
	case netplan.InCgroup:
		id, ok := t.ids[v.Path]
		if !ok {
			return fmt.Errorf("cgroup %s is not known", v.Path)
		}
		t.add(&expr.Socket{Key: expr.SocketKeyCgroupv2, Level: uint32(v.Level()), Register: unix.NFT_REG_1})
		t.equal(binary.NativeEndian.AppendUint64(nil, id))
	case netplan.OnLoopback:
		t.onLoopback(bool(v))
	case netplan.In:
		return t.lookup(v)
	default:
		return t.act(term)
	}
	return nil
}

func (t *translator) act(term netplan.Term) error {
	switch v := term.(type) {
	case netplan.Count:
		t.add(&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: string(v)})
	case netplan.Accept:
		t.add(&expr.Verdict{Kind: expr.VerdictAccept})
	case netplan.Drop:
		t.add(&expr.Verdict{Kind: expr.VerdictDrop})
	case netplan.Goto:
		t.add(&expr.Verdict{Kind: expr.VerdictGoto, Chain: string(v)})
	case netplan.Reject:
		t.add(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED})
	case netplan.Unreachable:
		t.add(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH})
	case netplan.Reset:
		t.needProto(netplan.TCP)
		t.add(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	case netplan.DNAT:
		t.dnat(netip.AddrPort(v))
	default:
		return fmt.Errorf("term %T is not known", term)
	}
	return nil
}

func (t *translator) payload(reg uint32, base expr.PayloadBase, offset, size uint32) {
	t.add(&expr.Payload{DestRegister: reg, Base: base, Offset: offset, Len: size})
}

// prefix compares an address of the network header, which begins at octet at4
// or at6 (RFC 791 section 3.1, RFC 8200 section 3), with a prefix.
func (t *translator) prefix(p netip.Prefix, at4, at6 uint32) {
	family, offset := netplan.IPv4, at4
	if p.Addr().Is6() {
		family, offset = netplan.IPv6, at6
	}
	t.needFamily(family)
	size := (p.Bits() + 7) / 8
	if size == 0 {
		return
	}
	t.payload(unix.NFT_REG_1, expr.PayloadBaseNetworkHeader, offset, uint32(size))
	if rest := p.Bits() % 8; rest != 0 {
		mask := bytes.Repeat([]byte{0xff}, size)
		mask[size-1] <<= 8 - rest
		t.add(&expr.Bitwise{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: uint32(size),
			Mask: mask, Xor: make([]byte, size),
		})
	}
	t.equal(p.Masked().Addr().AsSlice()[:size])
}

func (t *translator) resetting() {
	const flagsAt, rst = 13, 4 // RFC 9293 section 3.1
	t.needProto(netplan.TCP)
	t.payload(unix.NFT_REG_1, expr.PayloadBaseTransportHeader, flagsAt, 1)
	t.add(&expr.Bitwise{
		SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 1,
		Mask: []byte{rst}, Xor: []byte{0},
	})
	t.equal([]byte{rst})
}

func (t *translator) owner(o netplan.Owner) {
	t.add(&expr.Meta{Key: expr.MetaKeySKUID, Register: unix.NFT_REG_1})
	if o.First == o.Last {
		t.equal(binary.NativeEndian.AppendUint32(nil, o.First))
		return
	}
	// Ranges are compared byte by byte, so the number must be big-endian.
	t.add(&expr.Byteorder{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Op: expr.ByteorderHton, Len: 4, Size: 4},
		&expr.Cmp{Op: expr.CmpOpGte, Register: unix.NFT_REG_1, Data: binary.BigEndian.AppendUint32(nil, o.First)},
		&expr.Cmp{Op: expr.CmpOpLte, Register: unix.NFT_REG_1, Data: binary.BigEndian.AppendUint32(nil, o.Last)})
}

func (t *translator) onLoopback(is bool) {
	const lo = 1 // every namespace's loopback interface has this index
	op := expr.CmpOpEq
	if !is {
		op = expr.CmpOpNeq
	}
	t.add(&expr.Meta{Key: expr.MetaKeyIIF, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: op, Register: unix.NFT_REG_1, Data: binary.NativeEndian.AppendUint32(nil, lo)})
}

func (t *translator) dnat(to netip.AddrPort) {
	t.add(&expr.Immediate{Register: register(0), Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: register(1), Data: binaryutil.BigEndian.PutUint16(to.Port())},
		&expr.NAT{
			Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4,
			RegAddrMin: register(0), RegProtoMin: register(1), Specified: true,
		})
}

// lookup loads the fields into consecutive registers and looks them up.
func (t *translator) lookup(in netplan.In) error {
	set, ok := t.sets[in.Set]
	if !ok {
		return fmt.Errorf("set %s is not known", in.Set)
	}
	t.needFamily(netplan.IPv4)
	t.needProto(netplan.TCP)
	next := uint32(0)
	for _, f := range in.Fields {
		reg := register(next)
		switch f {
		case netplan.FieldUID:
			t.add(&expr.Meta{Key: expr.MetaKeySKUID, Register: reg})
		case netplan.FieldCgroup:
			t.add(&expr.Socket{Key: expr.SocketKeyCgroupv2, Level: netplan.SlotLevel, Register: reg})
		case netplan.FieldTo:
			t.payload(reg, expr.PayloadBaseNetworkHeader, 16, 4)
		case netplan.FieldFrom:
			t.payload(reg, expr.PayloadBaseNetworkHeader, 12, 4)
		case netplan.FieldToPort:
			t.payload(reg, expr.PayloadBaseTransportHeader, 2, 2)
		case netplan.FieldFromPort:
			t.payload(reg, expr.PayloadBaseTransportHeader, 0, 2)
		}
		next += (fieldType(f).Bytes + 3) / 4
	}
	t.add(&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: set.Name, SetID: set.ID})
	return nil
}

func fieldType(f netplan.Field) nftables.SetDatatype {
	switch f {
	case netplan.FieldUID:
		return nftables.TypeUID
	case netplan.FieldCgroup:
		return nftables.TypeCGroupV2
	case netplan.FieldTo, netplan.FieldFrom:
		return nftables.TypeIPAddr
	default:
		return nftables.TypeInetService
	}
}

// elementKey gives the bytes that the kernel compares.
func elementKey(fields []netplan.Field, e netplan.Element, ids cgroupIDs) ([]byte, error) {
	var key []byte
	for _, f := range fields {
		switch f {
		case netplan.FieldUID:
			key = binary.NativeEndian.AppendUint32(key, e.UID)
		case netplan.FieldCgroup:
			id, ok := ids[e.Cgroup]
			if !ok {
				return nil, fmt.Errorf("cgroup %s is not known", e.Cgroup)
			}
			key = binary.NativeEndian.AppendUint64(key, id)
		case netplan.FieldTo, netplan.FieldFrom:
			key = append(key, e.Addr.AsSlice()...)
		default:
			key = append(binary.BigEndian.AppendUint16(key, e.Port), 0, 0)
		}
	}
	return key, nil
}
