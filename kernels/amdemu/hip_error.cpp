// Errors: names, descriptions, the last one of a thread.
#include "hip_state.h"

struct ErrorText {
	hipError_t code;
	const char *name, *text;
};
#define E(code, text) {code, #code, text}
static const ErrorText errors[] = {
    E(hipSuccess, "no error"),
    E(hipErrorInvalidValue, "invalid argument"),
    E(hipErrorOutOfMemory, "out of memory"),
    E(hipErrorNotInitialized, "initialization error"),
    E(hipErrorDeinitialized, "driver shutting down"),
    E(hipErrorInvalidConfiguration, "invalid configuration argument"),
    E(hipErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    E(hipErrorInvalidDevice, "invalid device ordinal"),
    E(hipErrorNoDevice, "no ROCm-capable device is detected"),
    E(hipErrorInvalidImage, "device kernel image is invalid"),
    E(hipErrorInvalidContext, "invalid device context"),
    E(hipErrorNoBinaryForGpu, "no kernel image is available for execution on the device"),
    E(hipErrorFileNotFound, "file not found"),
    E(hipErrorInvalidHandle, "invalid resource handle"),
    E(hipErrorIllegalState, "the operation cannot be performed in the present state"),
    E(hipErrorNotFound, "named symbol not found"),
    E(hipErrorNotReady, "device not ready"),
    E(hipErrorIllegalAddress, "an illegal memory access was encountered"),
    E(hipErrorLaunchOutOfResources, "out of resources"),
    E(hipErrorLaunchTimeOut, "the launch timed out and was terminated"),
    E(hipErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    E(hipErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    E(hipErrorAssert, "device-side assert triggered"),
    E(hipErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    E(hipErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    E(hipErrorLaunchFailure, "unspecified launch failure"),
    E(hipErrorNotSupported, "operation not supported"),
    E(hipErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    E(hipErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    E(hipErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    E(hipErrorUnknown, "unknown error"),
};

static const ErrorText& text_of(hipError_t e) {
	for (const ErrorText& t : errors)
		if (t.code == e) return t;
	return *(std::end(errors) - 1);
}
API const char* hipGetErrorName(hipError_t e) { return text_of(e).name; }
API const char* hipGetErrorString(hipError_t e) { return text_of(e).text; }
API hipError_t hipDrvGetErrorName(hipError_t e, const char** s) {
	*s = hipGetErrorName(e);
	return hipSuccess;
}
API hipError_t hipDrvGetErrorString(hipError_t e, const char** s) {
	*s = hipGetErrorString(e);
	return hipSuccess;
}

API hipError_t hipPeekAtLastError() { return runtime().sticky ? runtime().sticky : last_error; }
API hipError_t hipGetLastError() {
	hipError_t e = hipPeekAtLastError();
	last_error = hipSuccess;
	return e;
}
API hipError_t hipExtGetLastError() { return hipGetLastError(); }
API hipError_t hipProfilerStart() { return hipSuccess; }
API hipError_t hipProfilerStop() { return hipSuccess; }

// For tests: whether the core knows an instruction; without a name, how many it knows.
API int amdemu_has_op(const char* name) { return name ? (int)op_table().count(name) : (int)op_table().size(); }
