// The runtime's state and the queues of its streams.
#include "hip_state.h"
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sys/mman.h>

thread_local int current_device = 0;
thread_local hipError_t last_error = hipSuccess;

static u8* reserve(u64 size, int protection) {
	void* p = mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? nullptr : (u8*)p;
}

static void reserve_arena(Arena& a) {
	for (; a.size >= 1ull << 30; a.size >>= 1) {
		a.backing = reserve(a.size, PROT_READ | PROT_WRITE);
		a.shadow = settings().host_visible ? a.backing : reserve(a.size, PROT_NONE);
		if (a.backing && a.shadow) return;
		if (a.backing) munmap(a.backing, a.size);
	}
	fprintf(stderr, "[amdemu] cannot reserve device address space\n");
	abort();
}

Runtime& runtime() {
	static Runtime* made = [] {
		auto* rt = new Runtime;
		reserve_arena(rt->arena);
		for (int i = 0; i < settings().devices; i++) {
			rt->null_streams.push_back(new Stream);
			rt->null_streams.back()->dev = i;
			rt->null_streams.back()->null = true;
		}
		return rt;
	}();
	return *made;
}

bool peer_allowed(int from, int to) { return runtime().peers[from & 63][to & 63]; }

double now_ms() {
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

hipError_t finish(hipError_t e, const char* function) {
	if (e == hipSuccess) return e;
	last_error = e;
	if (settings().log && e != hipErrorNotReady) fprintf(stderr, "[amdemu] %s -> %d\n", function, (int)e);
	return e;
}

Allocation* allocation_at(const void* p, u64* start) {
	auto& all = runtime().allocations;
	auto it = all.upper_bound((u64)p);
	if (it == all.begin()) return nullptr;
	--it;
	if ((u64)p >= it->first + it->second.size) return nullptr;
	if (start) *start = it->first;
	return &it->second;
}

Stream* stream_of(hipStream_t s) {
	Runtime& rt = runtime();
	if ((u64)s <= 2) return rt.null_streams[current_device];
	Stream* x = (Stream*)s;
	return rt.streams.count(x) ? x : nullptr;
}

static int run(Task& t) {
	t.running = true;
	t.stream->running++;
	int e = t.run();
	t.stream->running--;
	t.running = false;
	t.done = true;
	t.run = nullptr;
	if (e && !runtime().sticky) runtime().sticky = (hipError_t)e;
	runtime().ended.notify_all();
	return e;
}

void complete(TaskP t) {
	while (t && !t->done) {
		Stream* s = t->stream;
		TaskP front = s->queue.front();
		for (TaskP before : std::vector<TaskP>(front->after)) complete(before);
		if (front->running) {
			runtime().ended.wait(runtime().lock);
			continue;
		}
		if (!front->done) run(*front);
		front->after.clear();
		if (!s->queue.empty() && s->queue.front() == front) s->queue.pop_front();
	}
}

void flush(Stream* s) {
	complete(s->last);
	s->last = nullptr;
	while (s->running) runtime().ended.wait(runtime().lock);
}
// Streams may come and go while one is waited for; none is deleted.
static void flush_these(const std::function<bool(Stream*)>& wanted) {
	std::vector<Stream*> all(runtime().null_streams);
	all.insert(all.end(), runtime().streams.begin(), runtime().streams.end());
	for (Stream* s : all)
		if (wanted(s)) flush(s);
}
void flush_all() {
	flush_these([](Stream*) { return true; });
}
void flush_device(int dev) {
	flush_these([dev](Stream* s) { return s->dev == dev; });
}

static bool blocking(const Stream* s) { return !(s->flags & hipStreamNonBlocking); }

// The default stream waits for all blocking streams of its device, and they for it.
static void wait_for_default(Stream* s, Task& t) {
	auto wait = [&t](Stream* other) {
		if (other->last && !other->last->done) t.after.push_back(other->last);
	};
	if (!s->null) {
		if (blocking(s)) wait(runtime().null_streams[s->dev]);
		return;
	}
	for (Stream* x : runtime().streams)
		if (x->dev == s->dev && blocking(x)) wait(x);
}

int enqueue(Stream* s, std::function<int()> work, TaskP* made, TaskP after) {
	if (s->capture && !made) {
		s->capture->work.push_back(std::move(work));
		return 0;
	}
	auto t = std::make_shared<Task>();
	t->run = std::move(work);
	t->stream = s;
	if (made) *made = t;
	if (!settings().defer) {
		complete(after);
		return run(*t);
	}
	if (after && !after->done) t->after.push_back(after);
	wait_for_default(s, *t);
	s->queue.push_back(t);
	s->last = t;
	if (s->queue.size() > 20000) flush(s);
	return 0;
}

bool capturing_globally() {
	for (Stream* s : runtime().streams)
		if (s->capture && s->capture->mode == hipStreamCaptureModeGlobal) return true;
	return false;
}
void spoil_captures() {
	for (Stream* s : runtime().streams)
		if (s->capture) s->capture->bad = true;
}
