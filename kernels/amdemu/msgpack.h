// A value of MessagePack, the encoding of a code object's metadata.
#pragma once
#include "amdemu.h"

struct Packed {
	i64 number = 0; // of an integer or a boolean
	std::string text;
	std::vector<Packed> list;
	std::map<std::string, Packed> fields;

	bool has(const char* name) const { return fields.count(name) != 0; }
	// A field, empty where there is none.
	const Packed& operator[](const char* name) const;
};

// Reads one value from p on and moves p behind it. What is cut off reads as empty.
Packed parse_packed(const u8*& p, const u8* end);
