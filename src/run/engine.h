/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The engine runs a plan (run/plan.h) in boxes and fills in a run_result. One call of
 * engine_run() is one run, on the caller's thread. Any number of runs may be under way at
 * once. */

#include "base/err.h"
#include "lang/rootfs.h"
#include "lang/runtime.h"
#include "proto/handover.h"
#include "proto/network.h"
#include "run/cache/cache.h"
#include "run/plan.h"
#include "run/run.h"
#include "run/spawner.h"

#include <stdbool.h>
#include <sys/types.h>

/* An image of the operator, whose code may run in a zygote. */
struct engine_image {
    const struct runtime *runtime; /* one of options.runtimes */
    struct run_image *image;
    struct strv preload; /* modules that its zygotes import; none: it has no zygote */
    bool is_default;     /* sessions of its language have it unless they say otherwise */
};

enum { ENGINE_IMAGES_MAX = 8 };

struct engine_options {
    struct runtime_registry *runtimes; /* borrowed; every available one is registered. One whose
                                          root tree cannot be built becomes unavailable */
    struct lang_dirs dirs;
    const char *spawner_path; /* the spawner's program; NULL: hermes-spawn beside this one */
    int control_fd;           /* > 0: control socket of a spawner that runs already; taken */
    unsigned min_level;       /* enum spawn_level */
    unsigned networks;   /* network namespaces to keep ready, see spawn/network/network.h */
    bool share_networks; /* a network namespace may serve another key than before */
    bool sessions;       /* register roots for sessions that can be copied */
    bool zygotes;        /* start the zygotes and pools of the runtimes */
    unsigned park;       /* ready boxes of each zygote, and the most of each pool */
    unsigned park_free_percent; /* keep no ready boxes while less memory of the host is free */
    unsigned session_park;      /* ready boxes of each zygote of sessions */
    bool session_warm;          /* start zygotes of sessions now, not with the first session */
    bool allow_controls;        /* selftest: boxes may leave barriers out */
    bool host_roots; /* selftest: also register each root with the host's whole tree, for
                        controls */
    struct run_limits maxima;
    uint32_t processes_total; /* of all boxes together; 0: only the limits of the boxes */
    struct {
        const char *path;
        bool writable;
    } sources[SPAWN_MAX_SOURCES]; /* directories that run_mount.source refers to */
    size_t source_count;
    struct cache_settings cache; /* zeroed: compile results are not kept */
    int egress_fd;        /* > 0: the spawner's end of the socket of SPAWN_EGRESS; taken */
    const char *layers;   /* the directory of the layers of images (image/store.h), or NULL */
    const char *incoming; /* with it: the directory that layers are unpacked into */
    const char *operator_layers; /* with it: the layers of `images`, or NULL */
    struct engine_image images[ENGINE_IMAGES_MAX]; /* borrowed */
    size_t image_count;
    unsigned image_idle_s; /* how long a zygote of an image stays without a request */
    const char
        *image_text; /* about them, for clients that attach (engine_image_text()); or NULL */
    const char *seed_incoming; /* the directory that seeds are made in (lang/seed.h), or NULL */
    struct run_limits build_maxima;        /* of boxes that build images and seeds; zeroed: as
                                              maxima */
    const struct network_ceiling *network; /* start hermes-egress with this ceiling, for this
                                              engine alone; NULL: do not */
};

struct engine;
struct network_hub;
struct network_row;
struct network_totals;

/* Starts the spawner, registers the roots and waits for the spawner's reply. The error lists
 * the features that the host lacks for the minimum level. */
int engine_open(struct engine **ret, const struct engine_options *options, struct err *err);

/* The same in two steps, for a program that must start fast: the spawner starts while the
 * caller still finds out options.runtimes, sources and cache. Features that the host lacks are
 * reported by the first run. Without options.networks, the first run also moves the caller into
 * an empty network namespace, if it may, and gives that namespace to the first box. After a
 * failure of engine_register() the caller closes the engine. */
int engine_start(struct engine **ret, const struct engine_options *options, struct err *err);
int engine_register(
    struct engine *engine, const struct engine_options *options, struct err *err);
void engine_close(struct engine *engine);

/* The same for a program that is about to exit. No box is left, but this does not wait for the
 * spawner, which removes the last control group and ends a millisecond or two later. */
void engine_leave(struct engine *engine);

/* For the privilege split. hermes-prepare opens the engine on the control socket of the
 * monitor's spawner. It passes on this table (which root belongs to which runtime) and the
 * locks on the root trees and seeds, which must be held as long as the spawner lives. The
 * server attaches to the sealed spawner with the same runtimes (runtime_unpack()).
 * engine_attach() takes control_fd. */
int engine_write_table(const struct engine *engine, struct buf *to);
size_t engine_root_locks(const struct engine *engine, int ret[HANDOVER_MAX_LOCKS]);
int engine_attach(struct engine **ret, const struct engine_options *options, int control_fd,
    const struct buf *table, struct err *err);

/* Takes control_fd in place of the control socket of a spawner that died. The new spawner has
 * the same table. Runs may be under way. */
int engine_reattach(struct engine *engine, int control_fd);

/* False from the end of the spawner until the next one is attached. */
bool engine_is_alive(const struct engine *engine);

/* The features that the host enforces. */
const struct spawn_reply *engine_report(const struct engine *engine);

/* The thread that owns the network channels of this engine's boxes. */
struct network_hub *engine_network_hub(struct engine *engine);

/* Sums of what boxes tried to reach (network/hub.h). */
void engine_network_totals(struct engine *engine, struct network_totals *ret);

/* 0, or ERR_UNSUPPORTED that names what the host lacks for a mode. */
int engine_network_check(const struct engine *engine, unsigned mode, struct err *err);

/* The same for a program that has not waited for the answer to the seal: waits for it. */
int engine_network_ready(struct engine *engine, unsigned mode, struct err *err);

/* Whether boxes can have images, and the number (run_mount.source) of the directory that layers
 * are unpacked into. */
bool engine_has_images(const struct engine *engine);
unsigned engine_incoming(const struct engine *engine);

/* options.image_text of the process that registered the roots, or "". */
const char *engine_image_text(const struct engine *engine);

/* Whether boxes with the image are forked from a zygote, as long as it runs. */
bool engine_image_is_warm(const struct engine *engine, const struct run_image *image);

/* From now on runs with the image of a user may be copies of template boxes. Call it before the
 * first run. The keeper outlives the engine. */
struct template_keeper;
void engine_set_templates(struct engine *engine, const struct template_keeper *keeper);

/* Seeds (lang/seed.h): whether this engine can make them, and the number (run_mount.source) of
 * the directory that they are made in; where that of a runtime is, or NULL; whether a box has
 * worked without it. */
bool engine_has_seeds(const struct engine *engine);
unsigned engine_seed_source(const struct engine *engine);
const char *engine_seed_place(const struct engine *engine, const struct runtime *rt);
bool engine_seed_is_needed(const struct engine *engine, const struct runtime *rt);

/* The largest limits that a run may ask for. */
const struct run_limits *engine_maxima(const struct engine *engine);

enum run_stream { STREAM_STDOUT, STREAM_STDERR };

/* Callbacks and descriptors for following a run; all members but cancel_fd may be zero.
 * Callbacks run on the thread of engine_run(). */
struct run_watch {
    void *context;
    void (*started)(void *context);
    void (*output)(void *context, enum run_stream stream, const char *data, size_t len);
    void (*network)(void *context, const struct network_row *row); /* a first attempt */
    const int *sink_fds; /* two descriptors that receive stdout and stderr as they come, or
                            NULL; a failed write cancels the run */
    int *sink_error;     /* receives the negative errno of that write; may be NULL */
    int cancel_fd;       /* cancels the run when it becomes readable or hangs up; -1 for none */
    struct buf_purse *purse; /* counts memory kept for the run; outlives the result; or NULL */
    uint32_t remove;         /* selftest only: enum spawn_barrier bits to leave out */
    bool host_root;          /* selftest only: use the host's tree */
};

/* Returns 0 with result filled in (a failing program is a result), or negative errno with err
 * when Hermes could not do its job. result must be initialised. */
int engine_run(struct engine *engine, const struct run_plan *plan,
    const struct run_watch *watch, struct run_result *result, struct err *err);

/* A program that can be run many times, by any number of threads at once: compiled if its
 * language needs it, its files in one sealed package. */
struct engine_program;

/* The compile stage of engine_run(). When 0 is returned and *ret is NULL there is no program,
 * and result says why (compile_error or cancelled). The plan is borrowed until
 * engine_program_free(). */
int engine_prepare(struct engine *engine, const struct run_plan *plan,
    const struct run_watch *watch, struct run_result *result, struct engine_program **ret,
    struct err *err);

/* The parts that differ between runs of one program. The stdin of the spec is not used. */
struct run_variant {
    const struct strv *args;       /* NULL: the arguments of the spec. Otherwise the engine
                                      plans again, because templates contain arguments */
    const struct run_files *files; /* more files for the box, or NULL */
    const struct strv *collect;    /* globs of files to return, or NULL */
    const char *stdin_data;        /* whole stdin, or NULL */
    size_t stdin_size;
    int stdin_fd;        /* >= 0: copied into the box as it comes; borrowed */
    int box_stdin_fd;    /* ends of pipes that the box gets; taken; -1 for none. The */
    int box_stdout_fd;   /* output limit does not apply to these pipes */
    uint64_t stdout_max; /* 0: limits.output_kb, and everything is kept. Otherwise the limit of
                            stdout in bytes; all of it goes to watch->output, and the first
                            stdout_kept bytes are in the result */
    uint64_t stdout_kept;
};

/* Like engine_run(), without the compile stage. */
int engine_execute(const struct engine_program *program, const struct run_variant *variant,
    const struct run_watch *watch, struct run_result *result, struct err *err);
const struct run_limits *engine_program_limits(const struct engine_program *program);
void engine_program_free(struct engine_program *program); /* accepts NULL */
