// Instructions as llvm-objdump writes them: a name, operands, modifiers; two of
// them with :: between for a dual-issue pair.
#include "decode.h"
#include "optable.h"
#include <algorithm>
#include <cstdlib>

void not_implemented(Wave& w, const Instruction& I) { fault(w, 801, "instruction not implemented in emulator: %s", I.text.c_str()); }
static void not_understood(Wave& w, const Instruction& I) { fault(w, 801, "operand or modifier '%s' is not known to the emulator: %s", I.unknown.c_str(), I.text.c_str()); }

const OpTable& op_table() {
	static const OpTable* table = [] {
		auto* m = new OpTable;
		for (auto add : {add_moves, add_compares, add_integers, add_floats, add_divisions, add_halves, add_conversions, add_packed, add_dots, add_scalars,
		         add_scalar_floats, add_control, add_scalar_memory, add_memory, add_lds, add_atomics, add_wmma})
			add(*m);
		return m;
	}();
	return *table;
}

std::string trimmed(const std::string& text) {
	size_t a = text.find_first_not_of(' ');
	if (a == std::string::npos) return "";
	return text.substr(a, text.find_last_not_of(' ') - a + 1);
}

std::vector<std::string> split_outside_brackets(const std::string& text, char separator) {
	std::vector<std::string> parts;
	std::string part;
	int depth = 0;
	for (char c : text) {
		if (c == '[' || c == '(') depth++;
		if (c == ']' || c == ')') depth--;
		if (c == separator && depth == 0) {
			parts.push_back(part);
			part.clear();
		} else {
			part += c;
		}
	}
	if (!part.empty() || !parts.empty()) parts.push_back(part);
	return parts;
}

static bool starts_with(const std::string& s, const char* with) { return s.compare(0, strlen(with), with) == 0; }

// The numbers of name:[1,0,1].
static int parse_list(const std::string& s, u8* out, int most) {
	size_t p = s.find('[');
	int n = 0;
	while (p != std::string::npos && s[p] != ']' && n < most) {
		out[n++] = (u8)atoi(s.c_str() + p + 1);
		p = s.find_first_of(",]", p + 1);
	}
	return n;
}

static u8 part_selector(const std::string& v) {
	static const char* const names[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1"};
	for (int i = 0; i < SEL_DWORD; i++)
		if (v == names[i]) return (u8)i;
	return SEL_DWORD;
}

// A modifier: whole is its text, value what follows the colon.
typedef void (*Modify)(Instruction& I, const std::string& whole, const std::string& value);
#define MODIFY(...) [](Instruction& I, const std::string& m, const std::string& v) { (void)m; (void)v; __VA_ARGS__; }
#define DPP(control) MODIFY(I.dpp = control)
#define DPP_BY(control) MODIFY(I.dpp = control; I.dpp_arg[0] = (u8)atoi(v.c_str()))
#define NUMBER(field) MODIFY(I.field = (decltype(I.field))strtoll(v.c_str(), nullptr, 0))

static const std::unordered_map<std::string, Modify>& modifiers() {
	static const std::unordered_map<std::string, Modify> table = {
	    {"offset", NUMBER(offset)},
	    {"glc", MODIFY(I.glc = true)},
	    {"sc0", MODIFY(I.glc = true)},
	    {"th", MODIFY(if (v.find("ATOMIC_RETURN") != std::string::npos) I.glc = true)},
	    {"offen", MODIFY(I.offen = true)},
	    {"idxen", MODIFY(I.idxen = true)},
	    {"lds", MODIFY(I.to_lds = true)},
	    {"clamp", MODIFY(I.clamp = true)},
	    {"mul", MODIFY(I.omod = v == "2" ? 1 : 2)},
	    {"div", MODIFY(I.omod = 3)},
	    {"op_sel", MODIFY(I.n_op_sel = (u8)parse_list(m, I.op_sel, 4))},
	    {"op_sel_hi", MODIFY(parse_list(m, I.op_sel_hi, 3))},
	    {"neg_lo", MODIFY(parse_list(m, I.neg_lo, 3))},
	    {"neg_hi", MODIFY(parse_list(m, I.neg_hi, 3))},
	    {"quad_perm", MODIFY(I.dpp = DPP_QUAD; parse_list(m, I.dpp_arg, 4))},
	    {"dpp8", MODIFY(I.dpp = DPP_8; parse_list(m, I.dpp_arg, 8))},
	    {"row_shl", DPP_BY(DPP_SHL)},
	    {"row_shr", DPP_BY(DPP_SHR)},
	    {"row_ror", DPP_BY(DPP_ROR)},
	    {"row_mirror", DPP(DPP_MIRROR)},
	    {"row_half_mirror", DPP(DPP_HMIRROR)},
	    {"row_bcast", MODIFY(I.dpp = v == "15" ? DPP_BCAST15 : DPP_BCAST31)},
	    {"row_share", DPP_BY(DPP_SHARE)},
	    {"row_newbcast", DPP_BY(DPP_NEWBCAST)},
	    {"row_xmask", DPP_BY(DPP_XMASK)},
	    {"wave_shl", DPP(DPP_WSHL)},
	    {"wave_shr", DPP(DPP_WSHR)},
	    {"wave_rol", DPP(DPP_WROL)},
	    {"wave_ror", DPP(DPP_WROR)},
	    {"row_mask", NUMBER(row_mask)},
	    {"bank_mask", NUMBER(bank_mask)},
	    {"bound_ctrl", MODIFY(I.bound_ctrl = true)},
	    {"fi", NUMBER(fetch_inactive)},
	    {"dst_sel", MODIFY(I.sdwa = true; I.dst_sel = part_selector(v))},
	    {"dst_unused", MODIFY(I.sdwa = true; I.dst_unused = v == "UNUSED_SEXT" ? 1 : v == "UNUSED_PRESERVE" ? 2 : 0)},
	    {"src0_sel", MODIFY(I.sdwa = true; I.src0_sel = part_selector(v))},
	    {"src1_sel", MODIFY(I.sdwa = true; I.src1_sel = part_selector(v))},
	    {"cbsz", NUMBER(cbsz)},
	    {"abid", NUMBER(abid)},
	    {"blgp", NUMBER(blgp)},
	    {"byte_sel", NUMBER(x)},
	    {"bitop3", NUMBER(x)},
	};
	return table;
}

// Modifiers without a meaning here: which caches an access passes, and the offsets of
// LDS instructions, which are read from the encoding.
static bool is_without_effect(const std::string& name) {
	static const char* const names[] = {"slc", "dlc", "nt", "nv", "sc1", "scope", "offset0", "offset1"};
	return std::any_of(std::begin(names), std::end(names), [&](const char* n) { return name == n; });
}

static bool is_modifier(const std::string& name) { return modifiers().count(name) || is_without_effect(name); }

static void apply_modifiers(Instruction& I, const std::string& text) {
	for (const std::string& m : split_outside_brackets(text, ' ')) {
		size_t colon = m.find(':');
		const std::string name = m.substr(0, colon);
		auto it = modifiers().find(name);
		if (it != modifiers().end()) it->second(I, m, colon == std::string::npos ? "" : m.substr(colon + 1));
		else if (!name.empty() && !is_without_effect(name)) I.unknown = m;
	}
}

// Whether an instruction reads its operand as text: the names of hardware registers
// and messages, and how registers are indexed.
static bool reads_text(const std::string& name) {
	for (const char* with : {"s_getreg", "s_setreg", "s_sendmsg", "s_set_gpr_idx"})
		if (name.compare(0, strlen(with), with) == 0) return true;
	return false;
}

// An operand that is no register, constant or name that is known is not passed over.
static void find_unknown(Instruction& I) {
	if (reads_text(I.name)) return;
	for (int i = 0; i < I.n; i++)
		if (I.op[i].kind == K_TEXT) I.unknown = I.op[i].text;
}

// The name without what tells its encoding.
static std::string without_encoding(std::string n) {
	static const char* const suffixes[] = {"_e32", "_e64", "_dpp", "_sdwa", "_dpp8", "_vi"};
	for (bool again = true; again;) {
		again = false;
		for (const char* s : suffixes) {
			size_t k = strlen(s);
			if (n.size() > k && n.compare(n.size() - k, k, s) == 0) {
				n.resize(n.size() - k);
				again = true;
			}
		}
	}
	return n;
}

// Where the sources begin: behind the destination, or behind it and a carry or scale mask.
static u8 first_source(const std::string& n, int operands) {
	if (starts_with(n, "v_cmpx_")) return operands >= 3 ? 1 : 0;
	if (n.find("_co_u32") != std::string::npos || n.find("_co_ci_u32") != std::string::npos) return 2;
	for (const char* with : {"v_div_scale", "v_mad_u64_u32", "v_mad_i64_i32", "v_mad_co_"})
		if (starts_with(n, with)) return 2;
	return 1;
}

static void find_function(Instruction& I) {
	std::string n = without_encoding(I.name);
	auto it = op_table().find(n);
	I.fn = it == op_table().end() ? not_implemented : it->second;
	if (starts_with(n, "v_mfma_")) {
		I.name = n;
		I.fn = mfma;
	}
	if (!I.unknown.empty() && I.fn != not_implemented) I.fn = not_understood;
	I.first = first_source(n, I.n);
	I.modified_source = I.dpp || I.sdwa;
}

// Scalar instructions with a constant in the encoding (s_movk_i32, s_cmpk_eq_u32 ...) read it as 16 signed bits.
static void set_immediate(Instruction& I) {
	if (!starts_with(I.name, "s_")) return;
	bool short_constant = I.name.find("k_") != std::string::npos;
	for (int i = 0; i < I.n; i++)
		if (I.op[i].kind == K_LIT) I.simm = short_constant ? (i32)(i16)I.op[i].l32 : (i32)I.op[i].l32;
}

static void parse_single(Instruction& I, const std::string& text) {
	size_t space = text.find(' ');
	I.name = text.substr(0, space);
	std::string rest = space == std::string::npos ? "" : trimmed(text.substr(space + 1));
	// What op_sel_hi is where it is not written.
	for (const char* with : {"v_dot2_f16", "v_dot2_bf16", "v_fma_mix", "v_mad_mix"})
		if (starts_with(I.name, with)) I.op_sel_hi[0] = I.op_sel_hi[1] = I.op_sel_hi[2] = 0;
	// Their operands are not read, and not written like operands.
	if (starts_with(I.name, "s_wait") || I.name == "s_delay_alu" || I.name == "s_sendmsg") return find_function(I);

	// Modifiers stand behind the last operand, parted by spaces; or alone.
	std::vector<std::string> operands = split_outside_brackets(rest, ',');
	std::string mods;
	if (!operands.empty()) {
		std::vector<std::string> parts = split_outside_brackets(trimmed(operands.back()), ' ');
		operands.back() = parts.empty() ? "" : parts[0];
		for (size_t i = 1; i < parts.size(); i++) mods += parts[i] + " ";
		const std::string& last = operands.back();
		size_t colon = last.find(':'), bracket = last.find('[');
		const bool named = operands.size() == 1 && is_modifier(last); // buffer_wbl2 sc1
		if (named || (colon != std::string::npos && (bracket == std::string::npos || bracket > colon))) {
			mods = last + " " + mods;
			operands.pop_back();
		}
	}
	for (const std::string& t : operands)
		if (I.n < 8) I.op[I.n++] = parse_operand(t);
	if (I.n == 1 && I.op[0].text.empty()) I.n = 0;
	apply_modifiers(I, mods);
	find_unknown(I);
	set_immediate(I);
	find_function(I);
}

// Both halves read before either writes.
static void dual_issue(Wave& w, const Instruction& I) {
	const Instruction &x = *I.y, &y = *I.y->y;
	const u64 active = w.active;
	w.redirect = w.dual;
	x.fn(w, x);
	w.redirect = nullptr;
	w.active = active;
	y.fn(w, y);
	u32* d = vgpr(w, x.op[0].idx);
	for (int l = 0; l < w.width; l++) d[l] = (active >> l) & 1 ? w.dual[l] : d[l];
}

// Half of a pair: v_dual_mul_f32 is v_mul_f32.
static std::unique_ptr<Instruction> parse_half(const std::string& text, u32 addr) {
	auto half = std::make_unique<Instruction>();
	half->text = text;
	half->addr = addr;
	size_t p = text.find("v_dual_");
	parse_single(*half, trimmed(p == std::string::npos ? text : "v_" + text.substr(p + 7)));
	return half;
}

void parse_instruction(Instruction& I, const std::string& text) {
	I.text = text;
	size_t p = text.find(" :: ");
	if (p == std::string::npos) return parse_single(I, text);
	I.name = "v_dual";
	I.y = parse_half(text.substr(0, p), I.addr);
	I.y->y = parse_half(trimmed(text.substr(p + 4)), I.addr);
	I.fn = dual_issue;
	for (const Instruction* half : {I.y.get(), I.y->y.get()})
		if (half->fn == not_implemented || half->fn == not_understood) I.fn = half->fn, I.unknown = half->unknown;
}
