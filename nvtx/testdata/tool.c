// A tool that writes each call of an NVTX client to a file, one a line. It
// knows the client by what NVTX's headers say, and by nothing else.
//
// LOG is the file. What else is defined makes it another tool: CORE_ONLY takes
// no domains, NOTHING takes no functions, FAIL refuses to start, HANG never
// comes back from it, DIE ends the process there, NO_REGISTER
// gives out no handles, HALF takes pushes in domains and leaves their pops
// alone, SILENT writes no pushes and pops.
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*function)(void);

struct attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved0;
	union { uint64_t u; int64_t i; double d; } payload;
	int32_t message_type;
	const void *message;
};

struct callbacks {
	size_t size;
	int (*get_module)(int module, function ***table, unsigned *size);
};

struct version_info {
	size_t size;
	uint32_t version, reserved0;
	void (*set_version)(uint32_t version);
};

static FILE *out;
static char domains[8][64];
static char strings[4096][128];
static int domain_count, string_count, depth;
static uint64_t ranges = 100;

#define SAY(...) (flockfile(out), fprintf(out, "%ld ", syscall(SYS_gettid)), fprintf(out, __VA_ARGS__), fputc('\n', out), fflush(out), funlockfile(out))

static const char *domain_name(void *d) {
	for (int i = 0; i < domain_count; i++)
		if (d == domains[i])
			return d;
	return d ? "UNKNOWN" : "none";
}

static const char *show(const struct attributes *a) {
	static _Thread_local char s[256];
	int n = 0;
	if (a->version != 3 || a->size != 48 || sizeof *a != 48)
		return "BAD ATTRIBUTES";
	if (a->message_type == 1)
		n += sprintf(s + n, "text '%s'", (const char *)a->message);
	else if (a->message_type == 3) {
		int known = 0;
		for (int i = 0; i < string_count; i++)
			known |= a->message == strings[i];
		n += sprintf(s + n, "handle '%s'", known ? (const char *)a->message : "UNKNOWN");
	} else
		n += sprintf(s + n, "message type %d", a->message_type);
	if (a->category)
		n += sprintf(s + n, " category %u", a->category);
	if (a->color_type == 1)
		n += sprintf(s + n, " color %08X", a->color);
	else if (a->color_type)
		n += sprintf(s + n, " color type %d", a->color_type);
	switch (a->payload_type) {
	case 0: break;
	case 1: n += sprintf(s + n, " u64 %" PRIu64, a->payload.u); break;
	case 2: n += sprintf(s + n, " i64 %" PRId64, a->payload.i); break;
	case 3: n += sprintf(s + n, " double %g", a->payload.d); break;
	default: n += sprintf(s + n, " payload type %d", a->payload_type);
	}
	return s;
}

static void core_mark(const struct attributes *a) { SAY("MarkEx %s", show(a)); }
static uint64_t core_start(const struct attributes *a) {
	uint64_t id = __atomic_add_fetch(&ranges, 1, __ATOMIC_SEQ_CST);
	SAY("RangeStartEx %s = %" PRIu64, show(a), id);
	return id;
}
static void core_end(uint64_t id) { SAY("RangeEnd %" PRIu64, id); }
static int core_push(const struct attributes *a) { SAY("RangePushEx %s", show(a)); return depth++; }
static int core_pop(void) { SAY("RangePop"); return --depth; }
static void core_category(uint32_t id, const char *name) { SAY("NameCategoryA %u '%s'", id, name); }
static void core_thread(uint32_t id, const char *name) { SAY("NameOsThreadA %u '%s'", id, name); }

static void domain_mark(void *d, const struct attributes *a) { SAY("DomainMarkEx %s %s", domain_name(d), show(a)); }
static uint64_t domain_start(void *d, const struct attributes *a) {
	uint64_t id = (UINT64_C(1) << 40) + __atomic_add_fetch(&ranges, 1, __ATOMIC_SEQ_CST);
	SAY("DomainRangeStartEx %s %s = %" PRIu64, domain_name(d), show(a), id);
	return id;
}
static void domain_end(void *d, uint64_t id) { SAY("DomainRangeEnd %s %" PRIu64, domain_name(d), id); }
static int domain_push(void *d, const struct attributes *a) { SAY("DomainRangePushEx %s %s", domain_name(d), show(a)); return depth++; }
static int domain_pop(void *d) { SAY("DomainRangePop %s", domain_name(d)); return --depth; }
static void domain_category(void *d, uint32_t id, const char *name) { SAY("DomainNameCategoryA %s %u '%s'", domain_name(d), id, name); }
static void *domain_register(void *d, const char *text) {
	SAY("DomainRegisterStringA %s '%s'", domain_name(d), text);
#ifdef NO_REGISTER
	return NULL;
#else
	return strncpy(strings[string_count++], text, 127);
#endif
}
static void *domain_create(const char *name) {
	SAY("DomainCreateA '%s'", name);
	return strncpy(domains[domain_count++], name, 63);
}
static void domain_destroy(void *d) { SAY("DomainDestroy %s", domain_name(d)); }

static void cuda_device(int d, const char *name) { SAY("NameCuDeviceA %d '%s'", d, name); }
static void cuda_stream(void *s, const char *name) { SAY("NameCuStreamA %p '%s'", s, name); }

#ifdef SILENT
// The functions of a tool that takes pushes and pops without a word.
static int silent_push(void *d, const struct attributes *a) { return d && a ? depth++ : -1; }
static int silent_pop(void *d) { return d ? --depth : -1; }
#endif

static int take(struct callbacks *c, int module, unsigned want, function ***table) {
	unsigned size = 0;
	int ok = c->get_module(module, table, &size);
	SAY("module %d: %d, %u functions, first %s, last %s", module, ok, size, (*table)[0] ? "SET" : "NULL", (*table)[size] ? "SET" : "NULL");
	for (unsigned i = 1; i < size; i++)
		if (!(*table)[i] || *(*table)[i])
			SAY("module %d: slot %u is %s", module, i, (*table)[i] ? "not empty" : "missing");
	return ok == 1 && size >= want;
}

#define PUT(table, id, f) (*(table)[id] = (function)(f))

#ifdef NO_SYMBOL
int another_function(void) { return 1; }
#else
int InitializeInjectionNvtx2(const void *(*export)(uint32_t)) {
	out = fopen(LOG, "a");
#ifdef FAIL
	return 0;
#endif
#ifdef DIE
	__builtin_trap();
#endif
#ifdef HANG
	for (;;)
		pause();
#endif
	struct callbacks *c = (void *)export(1);
	const struct version_info *v = export(3);
	SAY("callbacks %zu, version %zu: %u, others %s", c->size, v->size, v->version, export(2) || export(4) ? "SET" : "NULL");
	v->set_version(3);
	function **core, **cuda, **core2, **none = NULL;
	if (!take(c, 1, 16, &core) || !take(c, 2, 9, &cuda) || !take(c, 5, 16, &core2))
		return 0;
	SAY("modules 0 and 7: %d %d", c->get_module(0, &none, NULL), c->get_module(7, &none, NULL));
#ifdef NOTHING
	return 1;
#endif
	PUT(core, 1, core_mark);
	PUT(core, 4, core_start);
	PUT(core, 7, core_end);
	PUT(core, 8, core_push);
	PUT(core, 11, core_pop);
	PUT(core, 12, core_category);
	PUT(core, 14, core_thread);
#ifndef CORE_ONLY
	PUT(cuda, 1, cuda_device);
	PUT(cuda, 5, cuda_stream);
	PUT(core2, 1, domain_mark);
	PUT(core2, 2, domain_start);
	PUT(core2, 3, domain_end);
	PUT(core2, 4, domain_push);
#ifndef HALF
	PUT(core2, 5, domain_pop);
#endif
	PUT(core2, 8, domain_category);
	PUT(core2, 10, domain_register);
	PUT(core2, 12, domain_create);
	PUT(core2, 14, domain_destroy);
#endif
#ifdef SILENT
	PUT(core2, 4, silent_push);
	PUT(core2, 5, silent_pop);
#endif
	return 1;
}
#endif
