// Streams, events and graphs.
#include "hip_state.h"

static hipError_t make_stream(hipStream_t* s, unsigned flags) {
	if (!s || flags > 1) return hipErrorInvalidValue;
	auto* x = new Stream;
	x->dev = current_device;
	x->flags = flags;
	runtime().streams.insert(x);
	*s = (hipStream_t)x;
	return hipSuccess;
}
API hipError_t hipStreamCreate(hipStream_t* s) {
	BEGIN;
	RETURN(make_stream(s, 0));
}
API hipError_t hipStreamCreateWithFlags(hipStream_t* s, unsigned flags) {
	BEGIN;
	RETURN(make_stream(s, flags));
}
API hipError_t hipStreamCreateWithPriority(hipStream_t* s, unsigned flags, int) {
	BEGIN;
	RETURN(make_stream(s, flags));
}
API hipError_t hipStreamDestroy(hipStream_t s) {
	BEGIN;
	Stream* x = (Stream*)s;
	if (!rt.streams.count(x)) RETURN(hipErrorInvalidHandle);
	flush(x);
	if (x->capture) x->capture->bad = true;
	rt.streams.erase(x); // tasks may still name it: it is not deleted
	RETURN(hipSuccess);
}
API hipError_t hipStreamSynchronize(hipStream_t s) {
	BEGIN;
	Stream* x = stream_of(s);
	if (!x) RETURN(hipErrorInvalidHandle);
	if (x->capture) {
		x->capture->bad = true;
		RETURN(hipErrorStreamCaptureUnsupported);
	}
	if (x->null)
		for (Stream* other : rt.streams)
			if (other->dev == x->dev && !(other->flags & hipStreamNonBlocking)) flush(other);
	flush(x);
	RETURN(rt.sticky);
}
// Busy work is finished at the third question: nothing runs in between.
API hipError_t hipStreamQuery(hipStream_t s) {
	BEGIN;
	Stream* x = stream_of(s);
	if (!x) RETURN(hipErrorInvalidHandle);
	if (x->last && !x->last->done) {
		if (x->polls++ < 2) RETURN(hipErrorNotReady);
		x->polls = 0;
		flush(x);
	}
	RETURN(rt.sticky);
}
API hipError_t hipStreamGetFlags(hipStream_t s, unsigned* flags) {
	BEGIN;
	Stream* x = stream_of(s);
	if (!x) RETURN(hipErrorInvalidHandle);
	*flags = x->flags;
	RETURN(hipSuccess);
}
API hipError_t hipStreamGetDevice(hipStream_t s, hipDevice_t* d) {
	BEGIN;
	Stream* x = stream_of(s);
	if (!x) RETURN(hipErrorInvalidHandle);
	*d = x->dev;
	RETURN(hipSuccess);
}
API hipError_t hipStreamGetPriority(hipStream_t, int* p) {
	*p = 0;
	return hipSuccess;
}
API hipError_t hipLaunchHostFunc(hipStream_t s, hipHostFn_t function, void* data) {
	BEGIN;
	Stream* x = stream_of(s);
	if (!x) RETURN(hipErrorInvalidHandle);
	RETURN(enqueue(x, [=] {
		function(data);
		return 0;
	}));
}
API hipError_t hipStreamAddCallback(hipStream_t s, hipStreamCallback_t callback, void* data, unsigned) {
	BEGIN;
	Stream* x = stream_of(s);
	if (!x) RETURN(hipErrorInvalidHandle);
	RETURN(enqueue(x, [=] {
		callback(s, runtime().sticky, data);
		return 0;
	}));
}

API hipError_t hipEventCreateWithFlags(hipEvent_t* e, unsigned flags) {
	BEGIN;
	if (!e) RETURN(hipErrorInvalidValue);
	auto* x = new Event;
	x->flags = flags;
	x->dev = current_device;
	rt.events.insert(x);
	*e = (hipEvent_t)x;
	RETURN(hipSuccess);
}
API hipError_t hipEventCreate(hipEvent_t* e) { return hipEventCreateWithFlags(e, 0); }
API hipError_t hipEventDestroy(hipEvent_t e) {
	BEGIN;
	Event* x = (Event*)e;
	if (!rt.events.count(x)) RETURN(hipErrorInvalidHandle);
	complete(x->task);
	rt.events.erase(x);
	delete x;
	RETURN(hipSuccess);
}
API hipError_t hipEventRecord(hipEvent_t e, hipStream_t s) {
	BEGIN;
	Event* x = (Event*)e;
	Stream* stream = stream_of(s);
	if (!rt.events.count(x) || !stream) RETURN(hipErrorInvalidHandle);
	x->recorded = true;
	x->polls = 0;
	x->capture = stream->capture;
	if (stream->capture) {
		x->task = nullptr;
		RETURN(hipSuccess);
	}
	complete(x->task);
	TaskP t;
	enqueue(
	    stream,
	    [x] {
		    x->time = now_ms();
		    return 0;
	    },
	    &t);
	x->task = t;
	RETURN(hipSuccess);
}
API hipError_t hipEventSynchronize(hipEvent_t e) {
	BEGIN;
	Event* x = (Event*)e;
	if (!rt.events.count(x)) RETURN(hipErrorInvalidHandle);
	if (x->capture) RETURN(hipErrorCapturedEvent);
	complete(x->task);
	RETURN(rt.sticky);
}
API hipError_t hipEventQuery(hipEvent_t e) {
	BEGIN;
	Event* x = (Event*)e;
	if (!rt.events.count(x)) RETURN(hipErrorInvalidHandle);
	if (x->task && !x->task->done) {
		if (x->polls++ < 2) RETURN(hipErrorNotReady);
		complete(x->task);
	}
	RETURN(rt.sticky);
}
API hipError_t hipEventElapsedTime(float* ms, hipEvent_t from, hipEvent_t to) {
	BEGIN;
	Event *x = (Event*)from, *y = (Event*)to;
	if (!ms || !rt.events.count(x) || !rt.events.count(y)) RETURN(hipErrorInvalidHandle);
	if (!x->recorded || !y->recorded || ((x->flags | y->flags) & hipEventDisableTiming)) RETURN(hipErrorInvalidHandle);
	if ((x->task && !x->task->done) || (y->task && !y->task->done)) RETURN(hipErrorNotReady);
	*ms = (float)(y->time - x->time);
	RETURN(hipSuccess);
}
API hipError_t hipStreamWaitEvent(hipStream_t s, hipEvent_t e, unsigned) {
	BEGIN;
	Event* x = (Event*)e;
	Stream* stream = stream_of(s);
	if (!rt.events.count(x) || !stream) RETURN(hipErrorInvalidHandle);
	if (x->capture) { // the stream joins the capture
		if (!stream->capture) stream->capture = x->capture;
		RETURN(hipSuccess);
	}
	if (!x->task || stream->capture) RETURN(hipSuccess);
	TaskP t;
	enqueue(stream, [] { return 0; }, &t, x->task);
	RETURN(hipSuccess);
}

API hipError_t hipStreamBeginCapture(hipStream_t s, hipStreamCaptureMode mode) {
	BEGIN;
	Stream* stream = stream_of(s);
	if (!stream) RETURN(hipErrorInvalidHandle);
	if (stream->null) RETURN(hipErrorStreamCaptureUnsupported);
	if (stream->capture) RETURN(hipErrorIllegalState);
	stream->capture = new Graph;
	stream->capture->mode = mode;
	RETURN(hipSuccess);
}
API hipError_t hipStreamEndCapture(hipStream_t s, hipGraph_t* g) {
	BEGIN;
	Stream* stream = stream_of(s);
	if (!stream || !g) RETURN(hipErrorInvalidHandle);
	if (!stream->capture) RETURN(hipErrorIllegalState);
	Graph* x = stream->capture;
	for (Stream* other : rt.streams)
		if (other->capture == x) other->capture = nullptr;
	for (Event* e : rt.events)
		if (e->capture == x) e->capture = nullptr;
	if (x->bad) {
		*g = nullptr;
		delete x;
		RETURN(hipErrorStreamCaptureInvalidated);
	}
	rt.graphs.insert(x);
	*g = (hipGraph_t)x;
	RETURN(hipSuccess);
}
API hipError_t hipStreamIsCapturing(hipStream_t s, hipStreamCaptureStatus* status) {
	BEGIN;
	Stream* stream = stream_of(s);
	if (!stream) RETURN(hipErrorInvalidHandle);
	*status = !stream->capture ? hipStreamCaptureStatusNone : stream->capture->bad ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive;
	RETURN(hipSuccess);
}
API hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
	*mode = hipStreamCaptureModeGlobal;
	return hipSuccess;
}
API hipError_t hipGraphInstantiate(hipGraphExec_t* e, hipGraph_t g, hipGraphNode_t*, char*, size_t) {
	BEGIN;
	if (!e || !rt.graphs.count((Graph*)g)) RETURN(hipErrorInvalidValue);
	auto* x = new Graph(*(Graph*)g);
	rt.graphs.insert(x);
	*e = (hipGraphExec_t)x;
	RETURN(hipSuccess);
}
API hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* e, hipGraph_t g, unsigned long long) { return hipGraphInstantiate(e, g, nullptr, nullptr, 0); }
API hipError_t hipGraphLaunch(hipGraphExec_t e, hipStream_t s) {
	BEGIN;
	Stream* stream = stream_of(s);
	Graph* x = (Graph*)e;
	if (!stream || !rt.graphs.count(x)) RETURN(hipErrorInvalidHandle);
	for (const auto& work : x->work)
		if (int r = enqueue(stream, work)) RETURN(r);
	RETURN(hipSuccess);
}
API hipError_t hipGraphUpload(hipGraphExec_t, hipStream_t) { return hipSuccess; }
static hipError_t destroy(Graph* g) {
	if (!runtime().graphs.erase(g)) return hipErrorInvalidValue;
	delete g;
	return hipSuccess;
}
API hipError_t hipGraphDestroy(hipGraph_t g) {
	BEGIN;
	RETURN(destroy((Graph*)g));
}
API hipError_t hipGraphExecDestroy(hipGraphExec_t g) {
	BEGIN;
	flush_device(current_device);
	RETURN(destroy((Graph*)g));
}
API hipError_t hipGraphGetNodes(hipGraph_t g, hipGraphNode_t* nodes, size_t* count) {
	BEGIN;
	if (!rt.graphs.count((Graph*)g)) RETURN(hipErrorInvalidValue);
	if (!nodes) *count = ((Graph*)g)->work.size();
	RETURN(hipSuccess);
}
API hipError_t hipGraphCreate(hipGraph_t* g, unsigned) {
	BEGIN;
	auto* x = new Graph;
	rt.graphs.insert(x);
	*g = (hipGraph_t)x;
	RETURN(hipSuccess);
}
API hipError_t hipGraphExecUpdate(hipGraphExec_t e, hipGraph_t g, hipGraphNode_t*, hipGraphExecUpdateResult* result) {
	BEGIN;
	if (!rt.graphs.count((Graph*)e) || !rt.graphs.count((Graph*)g)) RETURN(hipErrorInvalidValue);
	flush_all();
	((Graph*)e)->work = ((Graph*)g)->work;
	if (result) *result = hipGraphExecUpdateSuccess;
	RETURN(hipSuccess);
}
