// Operands as llvm-objdump writes them: v3, v[4:7], a0, s2, vcc, -|v1|, sext(v2),
// 0x3f800000, 0.5, off, src_shared_base ...
#include "decode.h"
#include <cstdlib>

static bool starts_with(const std::string& t, const char* with) { return t.compare(0, strlen(with), with) == 0; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_number(const std::string& t) {
	size_t i = t[0] == '-' || t[0] == '+';
	return i < t.size() && is_digit(t[i]);
}

// Takes name( and ) off.
static bool unwrap(std::string& t, const char* name) {
	size_t n = strlen(name);
	if (!starts_with(t, name) || t.size() < n + 2 || t[n] != '(' || t.back() != ')') return false;
	t = t.substr(n + 1, t.size() - n - 2);
	return true;
}

static void parse_signs(Operand& o, std::string& t) {
	if (t.size() > 1 && t[0] == '-' && !is_digit(t[1]) && t[1] != '.') {
		o.neg = true;
		t.erase(0, 1);
	}
	if (unwrap(t, "neg")) o.neg = true;
	if (unwrap(t, "abs")) o.abs = true;
	if (unwrap(t, "sext")) o.sext = true;
	if (!unwrap(t, "lit")) unwrap(t, "lit64");
	if (t.size() > 2 && t[0] == '|' && t.back() == '|') {
		o.abs = true;
		t = t.substr(1, t.size() - 2);
	}
	if (t.size() > 2 && t[t.size() - 2] == '.' && (t.back() == 'h' || t.back() == 'l')) {
		o.hi16 = t.back() == 'h';
		t.resize(t.size() - 2);
	}
}

// The number of a register: 7, or [7:9] whose first counts.
static bool register_number(const std::string& t, size_t at, int& number) {
	int last, read = 0;
	if (at >= t.size()) return false;
	if (sscanf(t.c_str() + at, "[%d:%d]%n", &number, &last, &read) == 2 && at + read == t.size()) return true;
	if (sscanf(t.c_str() + at, "[%d]%n", &number, &read) == 1 && at + read == t.size()) return true;
	return is_digit(t[at]) && sscanf(t.c_str() + at, "%d%n", &number, &read) == 1 && at + read == t.size();
}

static bool parse_register(Operand& o, const std::string& t) {
	static const std::unordered_map<std::string, int> named = {{"vcc", SG_VCC}, {"vcc_lo", SG_VCC}, {"vcc_hi", SG_VCC + 1}, {"exec", SG_EXEC},
	    {"exec_lo", SG_EXEC}, {"exec_hi", SG_EXEC + 1}, {"m0", SG_M0}, {"flat_scratch", SG_FLAT}, {"flat_scratch_lo", SG_FLAT}, {"flat_scratch_hi", SG_FLAT + 1},
	    {"xnack_mask", SG_XNACK}, {"xnack_mask_lo", SG_XNACK}, {"xnack_mask_hi", SG_XNACK + 1}};
	auto it = named.find(t);
	int n;
	if (it != named.end()) {
		o.kind = K_S;
		o.idx = (u16)it->second;
	} else if (starts_with(t, "ttmp") && register_number(t, 4, n)) {
		o.kind = K_S;
		o.idx = (u16)(SG_TTMP + n);
	} else if ((t[0] == 'v' || t[0] == 'a') && register_number(t, 1, n)) {
		o.kind = K_V;
		o.idx = (u16)(t[0] == 'a' ? FIRST_ACCUMULATOR + n : n);
	} else if (t[0] == 's' && register_number(t, 1, n)) {
		o.kind = K_S;
		o.idx = (u16)n;
	} else {
		return false;
	}
	return true;
}

static bool parse_special(Operand& o, const std::string& t) {
	static const std::unordered_map<std::string, u8> kinds = {{"off", K_OFF}, {"null", K_NULL}, {"scc", K_SCC}, {"src_scc", K_SCC}, {"vccz", K_VCCZ},
	    {"src_vccz", K_VCCZ}, {"execz", K_EXECZ}, {"src_execz", K_EXECZ}};
	static const std::unordered_map<std::string, u64> apertures = {{"src_shared_base", 0x0001000000000000ull}, {"shared_base", 0x0001000000000000ull},
	    {"src_private_base", 0x0002000000000000ull}, {"private_base", 0x0002000000000000ull}, {"src_shared_limit", 0x00010000ffffffffull},
	    {"src_private_limit", 0x00020000ffffffffull}};
	if (auto it = kinds.find(t); it != kinds.end()) {
		o.kind = it->second;
		return true;
	}
	if (auto it = apertures.find(t); it != apertures.end()) {
		o.kind = K_LIT;
		o.l64 = it->second;
		o.l32 = o.lpk = (u32)(it->second >> 32); // a 32-bit read takes the upper half
		o.l16 = (u16)o.l32;
		return true;
	}
	return false;
}

static void set_integer(Operand& o, i64 v) {
	o.l64 = (u64)v;
	o.l32 = o.lpk = (u32)v;
	o.l16 = (u16)v;
}

static void parse_constant(Operand& o, const std::string& t) {
	o.kind = K_LIT;
	if (t.find("0x") != std::string::npos) {
		bool negative = t[0] == '-';
		u64 v = strtoull(t.c_str() + (negative ? 3 : 2), nullptr, 16);
		set_integer(o, (i64)(negative ? -v : v));
		o.hexlit = true;
	} else if (t.find('.') != std::string::npos) {
		double d = atof(t.c_str());
		o.isf = true;
		o.l64 = as_u64(d);
		o.l32 = as_u32((float)d);
		o.l16 = f32_to_f16((float)d);
		if (std::fabs(d - 0.15915494309189532) < 1e-6) { // 1/(2 pi), printed rounded
			o.l64 = 0x3fc45f306dc9c882ull;
			o.l32 = 0x3e22f983;
			o.l16 = 0x3118;
		}
		o.lpk = o.l16; // a packed instruction finds it in the lower half
	} else {
		set_integer(o, strtoll(t.c_str(), nullptr, 10));
	}
}

Operand parse_operand(std::string text) {
	Operand o;
	std::string t = trimmed(text);
	o.text = t;
	if (t.empty()) return o;
	parse_signs(o, t);
	if (parse_special(o, t) || parse_register(o, t)) return o;
	if (is_number(t))
		parse_constant(o, t);
	else
		o.kind = K_TEXT;
	return o;
}
