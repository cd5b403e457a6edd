// MessagePack as code objects use it: no floats, no extensions.
// Source: the MessagePack specification (github.com/msgpack/msgpack, spec.md).
#include "msgpack.h"
#include <algorithm>

const Packed& Packed::operator[](const char* name) const {
	static const Packed none;
	auto it = fields.find(name);
	return it == fields.end() ? none : it->second;
}

namespace {
struct Reader {
	const u8*& p;
	const u8* end;

	u64 big_endian(int bytes) {
		u64 v = 0;
		for (int i = 0; i < bytes && p < end; i++) v = v << 8 | *p++;
		return v;
	}
	Packed number(i64 v) {
		Packed r;
		r.number = v;
		return r;
	}
	Packed text(u64 n) {
		Packed r;
		n = std::min<u64>(n, end - p);
		r.text.assign((const char*)p, n);
		p += n;
		return r;
	}
	Packed list(u64 n) {
		Packed r;
		for (u64 i = 0; i < n && p < end; i++) r.list.push_back(parse_packed(p, end));
		return r;
	}
	Packed map(u64 n) {
		Packed r;
		for (u64 i = 0; i < n && p < end; i++) {
			std::string name = parse_packed(p, end).text;
			r.fields[name] = parse_packed(p, end);
		}
		return r;
	}
};
} // namespace

Packed parse_packed(const u8*& p, const u8* end) {
	if (p >= end) return Packed();
	Reader in{p, end};
	u8 c = *p++;
	if (c < 0x80) return in.number(c);
	if (c < 0x90) return in.map(c & 15);
	if (c < 0xa0) return in.list(c & 15);
	if (c < 0xc0) return in.text(c & 31);
	if (c >= 0xe0) return in.number((i8)c);
	switch (c) {
	case 0xc2:
	case 0xc3: return in.number(c & 1);
	case 0xcc: return in.number((i64)in.big_endian(1));
	case 0xcd: return in.number((i64)in.big_endian(2));
	case 0xce: return in.number((i64)in.big_endian(4));
	case 0xcf: return in.number((i64)in.big_endian(8));
	case 0xd0: return in.number((i8)in.big_endian(1));
	case 0xd1: return in.number((i16)in.big_endian(2));
	case 0xd2: return in.number((i32)in.big_endian(4));
	case 0xd3: return in.number((i64)in.big_endian(8));
	case 0xd9: return in.text(in.big_endian(1));
	case 0xda: return in.text(in.big_endian(2));
	case 0xdb: return in.text(in.big_endian(4));
	case 0xdc: return in.list(in.big_endian(2));
	case 0xdd: return in.list(in.big_endian(4));
	case 0xde: return in.map(in.big_endian(2));
	case 0xdf: return in.map(in.big_endian(4));
	}
	return Packed();
}
