package driver

// sym is a driver call: its address (0 if the driver lacks it) and the symbol
// that was found.
type sym struct {
	addr  uintptr
	name  string
	since Version
}

// table holds every call bound.
type table struct {
	init                            sym
	driverGetVersion                sym
	getErrorName                    sym
	deviceGetCount                  sym
	deviceGet                       sym
	deviceGetName                   sym
	deviceGetAttribute              sym
	deviceGetPCIBusID               sym
	deviceGetUUID                   sym
	deviceTotalMem                  sym
	devicePrimaryCtxRetain          sym
	devicePrimaryCtxRelease         sym
	devicePrimaryCtxGetState        sym
	ctxSetCurrent                   sym
	ctxGetCurrent                   sym
	ctxGetDevice                    sym
	ctxSynchronize                  sym
	ctxGetStreamPriorityRange       sym
	profilerStart                   sym
	profilerStop                    sym
	memAlloc                        sym
	memFree                         sym
	memGetInfo                      sym
	memGetAddressRange              sym
	memHostAlloc                    sym
	memFreeHost                     sym
	memHostGetDevicePointer         sym
	memcpyHtoD                      sym
	memcpyDtoH                      sym
	memcpyDtoD                      sym
	memcpyHtoDAsync                 sym
	memcpyDtoHAsync                 sym
	memcpyDtoDAsync                 sym
	memsetD8                        sym
	memsetD8Async                   sym
	memsetD32Async                  sym
	streamCreate                    sym
	streamCreateWithPriority        sym
	streamDestroy                   sym
	streamSynchronize               sym
	streamQuery                     sym
	streamWaitEvent                 sym
	streamBeginCapture              sym
	streamBeginCaptureToGraph       sym
	streamEndCapture                sym
	streamIsCapturing               sym
	streamGetCaptureInfoV3          sym
	streamGetCaptureInfo            sym
	streamUpdateCaptureDepsV2       sym
	streamUpdateCaptureDeps         sym
	threadExchangeStreamCaptureMode sym
	eventCreate                     sym
	eventDestroy                    sym
	eventRecord                     sym
	eventRecordWithFlags            sym
	eventSynchronize                sym
	eventQuery                      sym
	eventElapsedTime                sym
	moduleLoadDataEx                sym
	moduleUnload                    sym
	moduleGetFunction               sym
	moduleGetLoadingMode            sym
	funcLoad                        sym
	funcGetName                     sym
	funcGetParamInfo                sym
	funcGetAttribute                sym
	funcSetAttribute                sym
	occupancyMaxActiveBlocks        sym
	launchKernel                    sym
	launchKernelEx                  sym
	graphCreate                     sym
	graphDestroy                    sym
	graphInstantiateWithFlags       sym
	graphInstantiateWithParams      sym
	graphUpload                     sym
	graphLaunch                     sym
	graphExecDestroy                sym
	graphExecUpdate                 sym
	graphExecKernelNodeSetParams    sym
	graphNodeSetEnabled             sym
	graphGetNodes                   sym
	graphGetEdges                   sym
	graphGetEdgesV2                 sym
	graphNodeGetType                sym
	graphKernelNodeGetParams        sym
	graphMemcpyNodeGetParams        sym
	graphMemsetNodeGetParams        sym
	graphChildGraphNodeGetGraph     sym
	graphAddKernelNode              sym
	graphAddDependencies            sym
	graphDestroyNode                sym
	graphDebugDotPrint              sym
	deviceGetGraphMemAttribute      sym
	deviceGraphMemTrim              sym
}

// entry says under which names a call is looked up, newest first, and which
// CUDA version brought it. Names are spelled out: what a header maps a plain
// name to changes with its version.
type entry struct {
	sym   *sym
	since Version
	names []string
}

func (t *table) entries() []entry {
	return []entry{
		{&t.init, 2000, []string{"cuInit"}},
		{&t.driverGetVersion, 2020, []string{"cuDriverGetVersion"}},
		{&t.getErrorName, 6000, []string{"cuGetErrorName"}},
		{&t.deviceGetCount, 2000, []string{"cuDeviceGetCount"}},
		{&t.deviceGet, 2000, []string{"cuDeviceGet"}},
		{&t.deviceGetName, 2000, []string{"cuDeviceGetName"}},
		{&t.deviceGetAttribute, 2000, []string{"cuDeviceGetAttribute"}},
		{&t.deviceGetPCIBusID, 4010, []string{"cuDeviceGetPCIBusId"}},
		{&t.deviceGetUUID, 11040, []string{"cuDeviceGetUuid_v2"}},
		{&t.deviceTotalMem, 3020, []string{"cuDeviceTotalMem_v2"}},
		{&t.devicePrimaryCtxRetain, 7000, []string{"cuDevicePrimaryCtxRetain"}},
		{&t.devicePrimaryCtxRelease, 11000, []string{"cuDevicePrimaryCtxRelease_v2"}},
		{&t.devicePrimaryCtxGetState, 7000, []string{"cuDevicePrimaryCtxGetState"}},
		{&t.ctxSetCurrent, 4000, []string{"cuCtxSetCurrent"}},
		{&t.ctxGetCurrent, 4000, []string{"cuCtxGetCurrent"}},
		{&t.ctxGetDevice, 2000, []string{"cuCtxGetDevice"}},
		{&t.ctxSynchronize, 2000, []string{"cuCtxSynchronize"}},
		{&t.ctxGetStreamPriorityRange, 5050, []string{"cuCtxGetStreamPriorityRange"}},
		{&t.profilerStart, 4000, []string{"cuProfilerStart"}},
		{&t.profilerStop, 4000, []string{"cuProfilerStop"}},
		{&t.memAlloc, 3020, []string{"cuMemAlloc_v2"}},
		{&t.memFree, 3020, []string{"cuMemFree_v2"}},
		{&t.memGetInfo, 3020, []string{"cuMemGetInfo_v2"}},
		{&t.memGetAddressRange, 3020, []string{"cuMemGetAddressRange_v2"}},
		{&t.memHostAlloc, 2020, []string{"cuMemHostAlloc"}},
		{&t.memFreeHost, 2000, []string{"cuMemFreeHost"}},
		{&t.memHostGetDevicePointer, 3020, []string{"cuMemHostGetDevicePointer_v2"}},
		{&t.memcpyHtoD, 3020, []string{"cuMemcpyHtoD_v2"}},
		{&t.memcpyDtoH, 3020, []string{"cuMemcpyDtoH_v2"}},
		{&t.memcpyDtoD, 3020, []string{"cuMemcpyDtoD_v2"}},
		{&t.memcpyHtoDAsync, 3020, []string{"cuMemcpyHtoDAsync_v2"}},
		{&t.memcpyDtoHAsync, 3020, []string{"cuMemcpyDtoHAsync_v2"}},
		{&t.memcpyDtoDAsync, 3020, []string{"cuMemcpyDtoDAsync_v2"}},
		{&t.memsetD8, 3020, []string{"cuMemsetD8_v2"}},
		{&t.memsetD8Async, 3020, []string{"cuMemsetD8Async"}},
		{&t.memsetD32Async, 3020, []string{"cuMemsetD32Async"}},
		{&t.streamCreate, 2000, []string{"cuStreamCreate"}},
		{&t.streamCreateWithPriority, 5050, []string{"cuStreamCreateWithPriority"}},
		{&t.streamDestroy, 4000, []string{"cuStreamDestroy_v2"}},
		{&t.streamSynchronize, 2000, []string{"cuStreamSynchronize"}},
		{&t.streamQuery, 2000, []string{"cuStreamQuery"}},
		{&t.streamWaitEvent, 3020, []string{"cuStreamWaitEvent"}},
		{&t.streamBeginCapture, 10010, []string{"cuStreamBeginCapture_v2"}},
		{&t.streamBeginCaptureToGraph, 12030, []string{"cuStreamBeginCaptureToGraph"}},
		{&t.streamEndCapture, 10000, []string{"cuStreamEndCapture"}},
		{&t.streamIsCapturing, 10000, []string{"cuStreamIsCapturing"}},
		{&t.streamGetCaptureInfoV3, 12030, []string{"cuStreamGetCaptureInfo_v3"}},
		{&t.streamGetCaptureInfo, 11030, []string{"cuStreamGetCaptureInfo_v2"}},
		{&t.streamUpdateCaptureDepsV2, 12030, []string{"cuStreamUpdateCaptureDependencies_v2"}},
		{&t.streamUpdateCaptureDeps, 11030, []string{"cuStreamUpdateCaptureDependencies"}},
		{&t.threadExchangeStreamCaptureMode, 10010, []string{"cuThreadExchangeStreamCaptureMode"}},
		{&t.eventCreate, 2000, []string{"cuEventCreate"}},
		{&t.eventDestroy, 4000, []string{"cuEventDestroy_v2"}},
		{&t.eventRecord, 2000, []string{"cuEventRecord"}},
		{&t.eventRecordWithFlags, 11010, []string{"cuEventRecordWithFlags"}},
		{&t.eventSynchronize, 2000, []string{"cuEventSynchronize"}},
		{&t.eventQuery, 2000, []string{"cuEventQuery"}},
		{&t.eventElapsedTime, 2000, []string{"cuEventElapsedTime_v2", "cuEventElapsedTime"}},
		{&t.moduleLoadDataEx, 2010, []string{"cuModuleLoadDataEx"}},
		{&t.moduleUnload, 2000, []string{"cuModuleUnload"}},
		{&t.moduleGetFunction, 2000, []string{"cuModuleGetFunction"}},
		{&t.moduleGetLoadingMode, 11070, []string{"cuModuleGetLoadingMode"}},
		{&t.funcLoad, 12040, []string{"cuFuncLoad"}},
		{&t.funcGetName, 12030, []string{"cuFuncGetName"}},
		{&t.funcGetParamInfo, 12040, []string{"cuFuncGetParamInfo"}},
		{&t.funcGetAttribute, 2020, []string{"cuFuncGetAttribute"}},
		{&t.funcSetAttribute, 9000, []string{"cuFuncSetAttribute"}},
		{&t.occupancyMaxActiveBlocks, 6050, []string{"cuOccupancyMaxActiveBlocksPerMultiprocessor"}},
		{&t.launchKernel, 4000, []string{"cuLaunchKernel"}},
		{&t.launchKernelEx, 11060, []string{"cuLaunchKernelEx"}},
		{&t.graphCreate, 10000, []string{"cuGraphCreate"}},
		{&t.graphDestroy, 10000, []string{"cuGraphDestroy"}},
		{&t.graphInstantiateWithFlags, 11040, []string{"cuGraphInstantiateWithFlags"}},
		{&t.graphInstantiateWithParams, 12000, []string{"cuGraphInstantiateWithParams"}},
		{&t.graphUpload, 11010, []string{"cuGraphUpload"}},
		{&t.graphLaunch, 10000, []string{"cuGraphLaunch"}},
		{&t.graphExecDestroy, 10000, []string{"cuGraphExecDestroy"}},
		{&t.graphExecUpdate, 12000, []string{"cuGraphExecUpdate_v2"}},
		{&t.graphExecKernelNodeSetParams, 12000, []string{"cuGraphExecKernelNodeSetParams_v2"}},
		{&t.graphNodeSetEnabled, 11060, []string{"cuGraphNodeSetEnabled"}},
		{&t.graphGetNodes, 10000, []string{"cuGraphGetNodes"}},
		{&t.graphGetEdges, 10000, []string{"cuGraphGetEdges"}},
		{&t.graphGetEdgesV2, 12030, []string{"cuGraphGetEdges_v2"}},
		{&t.graphNodeGetType, 10000, []string{"cuGraphNodeGetType"}},
		{&t.graphKernelNodeGetParams, 12000, []string{"cuGraphKernelNodeGetParams_v2"}},
		{&t.graphMemcpyNodeGetParams, 10000, []string{"cuGraphMemcpyNodeGetParams"}},
		{&t.graphMemsetNodeGetParams, 10000, []string{"cuGraphMemsetNodeGetParams"}},
		{&t.graphChildGraphNodeGetGraph, 10000, []string{"cuGraphChildGraphNodeGetGraph"}},
		{&t.graphAddKernelNode, 12000, []string{"cuGraphAddKernelNode_v2"}},
		{&t.graphAddDependencies, 10000, []string{"cuGraphAddDependencies"}},
		{&t.graphDestroyNode, 10000, []string{"cuGraphDestroyNode"}},
		{&t.graphDebugDotPrint, 11030, []string{"cuGraphDebugDotPrint"}},
		{&t.deviceGetGraphMemAttribute, 11040, []string{"cuDeviceGetGraphMemAttribute"}},
		{&t.deviceGraphMemTrim, 11040, []string{"cuDeviceGraphMemTrim"}},
	}
}
