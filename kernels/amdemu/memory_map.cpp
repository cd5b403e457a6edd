// The ranges of memory that kernels may touch, the check of an access against
// them, and the report of a fault.
#include "settings.h"
#include "wave.h"
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <shared_mutex>

namespace {
struct Range {
	u64 lo, hi;
	std::string what;
	i64 delta;
	int dev;
};
std::shared_mutex lock;
std::map<u64, Range> ranges;

typedef unsigned long long ull;

std::string describe(const Range& r) {
	char b[200];
	snprintf(b, sizeof b, "%s [%#llx,+%llu)", r.what.c_str(), (ull)r.lo, (ull)(r.hi - r.lo));
	return b;
}
} // namespace

void memory_add(u64 lo, u64 size, const char* what, i64 delta, int dev) {
	std::unique_lock<std::shared_mutex> guard(lock);
	ranges[lo] = Range{lo, lo + size, what, delta, dev};
}

void memory_remove(u64 lo) {
	std::unique_lock<std::shared_mutex> guard(lock);
	ranges.erase(lo);
}

bool memory_find(u64 a, u64* lo, u64* size, i64* delta) {
	std::shared_lock<std::shared_mutex> guard(lock);
	auto it = ranges.upper_bound(a);
	if (it == ranges.begin()) return false;
	const Range& r = std::prev(it)->second;
	if (a >= r.hi && a != r.lo) return false;
	*lo = r.lo;
	*size = r.hi - r.lo;
	if (delta) *delta = r.delta;
	return true;
}

void find_address(Wave& w, u64 a, u32 size, bool store, int lane) {
	std::string near;
	{
		std::shared_lock<std::shared_mutex> guard(lock);
		auto next = ranges.upper_bound(a);
		if (next != ranges.begin()) {
			const Range& r = std::prev(next)->second;
			if (a + size <= r.hi) {
				int dev = w.group->c->dev;
				if (r.dev >= 0 && r.dev != dev && !peer_allowed(dev, r.dev))
					fault(w, 700, "device %d accesses memory of device %d without peer access enabled", dev, r.dev);
				w.hit_lo = r.lo;
				w.hit_hi = r.hi;
				w.hit_delta = r.delta;
				return;
			}
			near = "; nearest below: " + describe(r) + " -> access at offset " + std::to_string(a - r.lo);
		}
		if (next != ranges.end()) near += "; next above: " + describe(next->second);
	}
	std::string who = lane < 0 ? "scalar" : "lane " + std::to_string(lane);
	fault(w, 700, "illegal %s of %u bytes at %#llx (%s)%s", store ? "write" : "read", size, (ull)a, who.c_str(), near.c_str());
}

void fault(Wave& w, int code, const char* fmt, ...) {
	char what[1024], where[600];
	va_list arguments;
	va_start(arguments, fmt);
	vsnprintf(what, sizeof what, fmt, arguments);
	va_end(arguments);
	const WorkGroup& g = *w.group;
	snprintf(where, sizeof where, "[amdemu] fault in kernel %s block (%u,%u,%u) wave %u pc %#x: %s\n  ", g.k->name.c_str(), g.id[0], g.id[1], g.id[2], w.id,
	    w.current ? w.current->addr : 0, w.current ? w.current->text.c_str() : "");
	throw Fault{std::string(where) + what, code};
}
