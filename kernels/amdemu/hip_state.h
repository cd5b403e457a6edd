// State of the HIP runtime: devices, allocations, streams with their queues, and
// the pattern in which every API function begins and ends. Nothing here touches
// a real device.
#pragma once
#include "hip_abi.h"
#include "settings.h"
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>

#define API extern "C" __attribute__((visibility("default")))

enum class Kind { DEVICE, PINNED, REGISTERED, MANAGED };

struct Allocation {
	u64 size, reserved;
	int dev;
	Kind kind;
	void* own; // what to free
	unsigned flags;
};

struct Stream;

// A piece of work: a launch, a copy, an event. It is done when run has returned.
struct Task {
	std::function<int()> run; // 0 or an error code
	bool done = false, running = false;
	Stream* stream = nullptr;
	std::vector<std::shared_ptr<Task>> after; // of other streams
};
typedef std::shared_ptr<Task> TaskP;

// A graph, and a graph made executable: work in the order of capture.
struct Graph {
	std::vector<std::function<int()>> work;
	int mode = 0;
	bool bad = false; // an illegal call was made during capture
};

struct Stream {
	int dev = 0;
	unsigned flags = 0;
	bool null = false; // the default stream of its device
	std::deque<TaskP> queue;
	TaskP last;
	Graph* capture = nullptr;
	int polls = 0; // since the stream was last found busy
	int running = 0; // tasks under way, on whatever thread
};

struct Event {
	unsigned flags = 0;
	TaskP task;
	double time = 0; // ms
	bool recorded = false;
	Graph* capture = nullptr;
	int polls = 0;
	int dev = 0;
};

struct Module {
	Program* p = nullptr;
	int dev = 0;
};

// Device memory has addresses in a range that the host cannot touch (shadow) and
// bytes in another (backing), so that a host access to a device pointer crashes.
struct Arena {
	u8 *shadow = nullptr, *backing = nullptr;
	u64 size = 1ull << 40, used = 4096; // addresses are given out once
	bool holds(u64 a) const { return a >= (u64)shadow && a < (u64)shadow + size; }
	bool hidden() const { return shadow != backing; }
	u8* bytes(u64 a) const { return backing + (a - (u64)shadow); }
};

struct Runtime {
	std::recursive_mutex lock; // of all that follows; a kernel runs without it
	std::condition_variable_any ended; // a task has
	Arena arena;
	std::map<u64, Allocation> allocations; // by address
	u64 used[64] = {0};                    // bytes per device
	bool peers[64][64] = {{false}};
	std::vector<Stream*> null_streams;
	std::set<Stream*> streams;
	std::set<Event*> events;
	std::set<Graph*> graphs;
	std::set<Module*> modules;
	std::map<Kernel*, Module*> kernels;
	hipError_t sticky = hipSuccess; // a fault stays until the device is reset
};
Runtime& runtime(); // made, with its address space, at the first call

extern thread_local int current_device;
extern thread_local hipError_t last_error;

static inline bool is_device(int d) { return d >= 0 && d < settings().devices; }

double now_ms();
hipError_t finish(hipError_t e, const char* function); // remembers and logs an error

// The allocation that holds an address, or nullptr; start is where it begins.
Allocation* allocation_at(const void* p, u64* start = nullptr);

// The stream behind a handle (null and the two special values are the default stream), or nullptr.
Stream* stream_of(hipStream_t s);

// Appends work to a stream, to its capture, or runs it at once where nothing is
// deferred. With made, the task comes back and is never captured. after is a
// task that must be done before.
int enqueue(Stream* s, std::function<int()> work, TaskP* made = nullptr, TaskP after = nullptr);
void complete(TaskP t); // runs all up to t
void flush(Stream* s);
void flush_all();
void flush_device(int dev);

bool capturing_globally();
void spoil_captures();

// Gives the runtime's lock up, which its thread holds once.
struct Unlocked {
	Unlocked() { runtime().lock.unlock(); }
	~Unlocked() { runtime().lock.lock(); }
};

#define RETURN(x) return finish((hipError_t)(x), __func__)
// Begins a function that fails after a fault.
#define BEGIN \
	Runtime& rt = runtime(); \
	std::lock_guard<std::recursive_mutex> guard_(rt.lock); \
	if (rt.sticky) RETURN(rt.sticky)
// Refuses what is illegal while a stream is being captured.
#define NOT_IN_CAPTURE \
	if (capturing_globally()) { \
		spoil_captures(); \
		RETURN(hipErrorStreamCaptureUnsupported); \
	}
