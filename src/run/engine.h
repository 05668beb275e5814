/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The engine: runs a run_spec in boxes and fills in a run_result. One call of engine_run() is
 * one run from validation to result, on the caller's thread; any number may be under way at
 * once. */

#include "base/err.h"
#include "lang/rootfs.h"
#include "lang/runtime.h"
#include "run/cache.h"
#include "run/run.h"
#include "run/spawner.h"

#include <stdbool.h>
#include <sys/types.h>

struct engine_options {
    const struct runtime_registry *runtimes; /* borrowed; every available one is registered */
    unsigned min_level;                      /* enum spawn_level */
    unsigned networks;                       /* to keep ready, see spawn/network.h */
    bool zygotes;                            /* start those that the runtimes have */
    unsigned park;                           /* boxes of each zygote to keep ready, and at most
                                                of each pool */
    unsigned park_free_percent;              /* none while less of the host's memory is free */
    unsigned session_park;                   /* boxes of each zygote of sessions */
    bool session_warm;   /* zygotes of sessions start with the engine, not with the first one */
    bool allow_controls; /* selftest: boxes may leave barriers out */
    bool host_roots;     /* selftest: also register each root with the host's
                            whole tree, for controls */
    struct run_limits maxima;
    uint32_t processes_total; /* of all boxes together; 0: no limit but each box's own */
    struct {
        const char *path;
        bool writable;
    } sources[SPAWN_MAX_SOURCES]; /* directories for run_mount.source */
    size_t source_count;
    struct cache_settings cache; /* zero: compile results are not kept */
};

struct engine;

/* Starts the spawner and registers the roots. The error tells, feature by feature, what the
 * host lacks for the minimum level. */
int engine_open(struct engine **ret, const struct engine_options *options, struct err *err);

/* The same in two steps, for a program in a hurry: the spawner starts while options.runtimes,
 * sources and cache are still being found out. What the host lacks then shows in engine_run().
 * The second step moves the caller into an empty network namespace, if it may, and gives that
 * to the first box. After a failure the engine is to be closed. */
int engine_start(struct engine **ret, const struct engine_options *options, struct err *err);
int engine_register(
    struct engine *engine, const struct engine_options *options, struct err *err);
void engine_close(struct engine *engine);

/* The same for a program that ends now: no box is left, but the spawner is not waited for while
 * it removes the last control group and ends, a millisecond or two later. */
void engine_leave(struct engine *engine);

/* For the privilege split: the monitor opens the engine, hands the control socket and this
 * table (what is registered where) to the server, which attaches with its own copy of the
 * runtimes. Versions of the runtimes travel along and are filled into `runtimes`. Attaching
 * takes control_fd. */
int engine_write_table(const struct engine *engine, struct buf *to);
int engine_control_fd(const struct engine *engine);
pid_t engine_spawner_pid(const struct engine *engine);
int engine_attach(struct engine **ret, const struct engine_options *options,
    struct runtime_registry *runtimes, int control_fd, const struct buf *table,
    struct err *err);

/* Takes control_fd in place of that of a spawner which died; it has the same table. Runs may be
 * under way. */
int engine_reattach(struct engine *engine, int control_fd);

/* False from the moment the spawner is gone until the next one is attached. */
bool engine_is_alive(const struct engine *engine);

/* What the host enforces. */
const struct spawn_reply *engine_report(const struct engine *engine);

/* The most that any run may ask for. */
const struct run_limits *engine_maxima(const struct engine *engine);

enum run_stream { STREAM_STDOUT, STREAM_STDERR };

/* How the caller follows a run; all may be zero. Called on the thread of engine_run(). */
struct run_watch {
    void *context;
    void (*started)(void *context);
    void (*output)(void *context, enum run_stream stream, const char *data, size_t len);
    const int *sink_fds; /* two descriptors that get stdout and stderr as they come, or NULL;
                            when one takes no more, the run is cancelled */
    int *sink_error;     /* gets the negative errno then; may be NULL */
    int cancel_fd; /* the run is cancelled when this becomes readable or hangs up; -1 for none
                    */
    struct buf_purse *purse; /* counts what is kept of the run; outlives the result; or NULL */
    uint32_t remove;         /* enum spawn_barrier bits to leave out: selftest only */
    bool host_root;          /* use the host's tree: selftest only */
};

/* Returns 0 with result filled in (a failing program is a result), or negative errno with err:
 * ERR_INVALID for a bad spec, else Hermes could not do its job. result must be initialised. */
int engine_run(struct engine *engine, const struct run_spec *spec,
    const struct run_watch *watch, struct run_result *result, struct err *err);

/* A program that is ready to be run many times, by any number of threads at once: planned,
 * compiled if its language is, its files in one sealed job. */
struct engine_program;

/* The compile stage of engine_run(). With 0, *ret is NULL when there is no program, and result
 * says why (compile_error or cancelled). spec is borrowed until engine_program_free(). */
int engine_prepare(struct engine *engine, const struct run_spec *spec,
    const struct run_watch *watch, struct run_result *result, struct engine_program **ret,
    struct err *err);

/* What one run of a program has of its own; its stdin is not that of the spec. */
struct run_variant {
    const struct strv *args;       /* NULL: those of the spec */
    const struct run_files *files; /* more files for the box, or NULL */
    const struct strv *collect;    /* or NULL */
    const char *stdin_data;        /* whole stdin, or NULL */
    size_t stdin_size;
    int stdin_fd;        /* pumped when >= 0, borrowed */
    int box_stdin_fd;    /* ends of pipes that become the box's own, taken; -1 for none. The */
    int box_stdout_fd;   /* output limit does not see what goes through them */
    uint64_t stdout_max; /* 0: limits.output_kb, all kept. Else so many bytes are within the
                            limit and go to watch->output; only the first stdout_kept are in
                            the result */
    uint64_t stdout_kept;
};

/* Like engine_run(), without the compile stage. */
int engine_execute(const struct engine_program *program, const struct run_variant *variant,
    const struct run_watch *watch, struct run_result *result, struct err *err);
const struct run_limits *engine_program_limits(const struct engine_program *program);
void engine_program_free(struct engine_program *program); /* accepts NULL */

/* Checks spec as engine_run() would, without running it, and tells the memory it may take. */
int engine_weigh(
    struct engine *engine, const struct run_spec *spec, struct box_need *ret, struct err *err);
