/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The types of a run: the request (run_spec) and the result (run_result). JSON, the command
 * line and docs/api.md use the same names. */

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"
#include "base/strv.h"
#include "lang/files.h"
#include "lang/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/spawn.h"

struct network_policy;
struct network_report;
struct network_asker;
struct runtime;

enum run_status {
    RUN_QUEUED,
    RUN_RUNNING,
    RUN_OK,
    RUN_RUNTIME_ERROR,
    RUN_SIGNALED,
    RUN_TIME_LIMIT,
    RUN_MEMORY_LIMIT,
    RUN_OUTPUT_LIMIT,
    RUN_COMPILE_ERROR,
    RUN_CANCELLED,
    RUN_INTERNAL_ERROR,
    RUN_STATUS_COUNT
};

/* "ok", "runtime_error", ... */
const char *run_status_name(enum run_status status);

/* Bits of limits_hit, in the order they are listed. */
enum {
    HIT_WALL = 1 << 0,
    HIT_CPU = 1 << 1,
    HIT_MEMORY = 1 << 2,
    HIT_OUTPUT = 1 << 3,
    HIT_NETWORK = 1 << 4,
    HIT_PROCESSES = 1 << 5,
    HIT_DISK = 1 << 6,
    HIT_COUNT = 7
};
const char *run_hit_name(unsigned bit_index); /* 0 -> "wall" */

/* "SIGSEGV", "SIGRTMIN+1". */
const char *run_signal_name(int signal);

/* The operator's directories, which requests may name. */
enum { MOUNT_TABLE_MAX = 32 };
struct mount_def {
    char *name;
    char *path;
    bool writable;
};
struct mount_table {
    struct mount_def items[MOUNT_TABLE_MAX];
    size_t count;
};

/* A directory of the operator in a box. */
struct run_mount {
    unsigned source; /* index of the directory in the engine's table */
    bool writable;
    char path[256]; /* path in the box */
};

/* The layers of an image, as the spawner wants them. */
struct run_image {
    char id[ID_MAX + 64];
    struct strv env;   /* variables that the image sets */
    bool is_whole;     /* the layers are a whole root, not something at /opt */
    char program[128]; /* whole: path of the interpreter, ... */
    uint32_t exec;     /* ... and its number among the programs of the root */
    uint32_t count;
    uint8_t layers[SPAWN_MAX_LAYERS][SPAWN_DIGEST]; /* the newest first */
    struct strv preload;                            /* modules that may be imported ahead */
    uint64_t preload_mb;      /* memory of these modules, measured by the build */
    struct run_image *former; /* of a live session: the image it had before; another thread
                               * may still read it */
};
struct run_image *run_image_copy(const struct run_image *image); /* NULL for NULL */
void run_image_free(struct run_image *image);                    /* accepts NULL */

struct run_spec {
    const struct runtime *runtime;
    struct run_files files; /* `code` of a request is already the entry file here */
    char *entry;            /* name of the file to run; NULL means the runtime's main file */
    char *shell; /* a command line for the box's sh, instead of compiling and running; the box
                    then has the toolchain. NULL: none */
    struct strv args;
    struct strv env; /* "KEY=value", keys checked by run_env_problem() */
    struct strv compile_args;
    struct strv collect;
    struct run_limits limits; /* 0: the runtime's default */
    struct run_limits compile_limits;
    struct run_mount mounts[8];
    size_t mount_count;
    struct network_policy *network; /* of the program's box; NULL: none */
    struct network_asker *asker;    /* asks about connections in mode "ask", or NULL */
    struct strv secrets;            /* names; a server turns them into network, env and trust */
    const struct run_files *trust;  /* authorities that the program trusts; borrowed, or NULL */
    char *image_name;               /* the image that was asked for, or NULL */
    bool wants_no_image;            /* the language's own name was asked for */
    struct run_image *image;        /* the same, found; NULL: none */
    bool installs;                  /* requirements.txt or package.json of `files` come first */
    bool is_internal;               /* Hermes itself asks: it may use an internal runtime */
    char *stdin_data;               /* whole stdin, or NULL */
    size_t stdin_size;
    int stdin_fd;   /* >= 0: copied into the box as it comes; borrowed */
    uint32_t owner; /* owner of its boxes' share of the processors (spawn/shares.h); 0: none */
    char *cache_scope; /* runs with the same scope (the API key's name) share compile results;
                          NULL: the run does not use the cache */
};

void run_spec_init(struct run_spec *spec);
void run_spec_done(struct run_spec *spec);

/* NULL when key and value are a valid variable of a box: key matches [A-Za-z_][A-Za-z0-9_]*,
 * has at most 128 bytes and does not begin with HERMES_; value has no NUL. Else a short
 * reason. */
const char *run_env_problem(const char *key, const char *value, size_t value_len);

struct run_usage {
    double wall_ms;
    double cpu_ms;
    uint64_t memory_peak_kb;
    double queue_ms;
    double setup_ms;
};

/* The result of one box: of the compile stage or of the run stage. */
struct stage_result {
    enum run_status status;
    bool is_warm;            /* a zygote or a ready box served it */
    const char *cold_reason; /* of run/warmth.h, when it started and was not warm */
    int exit_code;           /* valid when exited */
    bool exited;
    int signal; /* 0 unless a signal ended the program */
    unsigned limits_hit;
    char message[256];
    struct buf out;
    struct buf err;
    bool out_truncated;
    bool err_truncated;
    struct run_usage usage;
    struct network_report *network; /* attempts to reach the network; NULL: no network was
                                     * asked for */
    uint64_t ended_ns;              /* when the program ended, by clock_ns() */
};
void stage_result_init(struct stage_result *stage, uint64_t output_max);
void stage_result_done(struct stage_result *stage);

struct run_result {
    char id[ID_MAX];
    struct stage_result run;
    bool has_compile;
    bool compile_cached;
    bool compile_seeded; /* the compiler had the seed of its language (lang/seed.h) */
    struct stage_result compile;
    struct run_files files; /* collected */
    char *approvals;        /* JSON list of what was approved for it; NULL: nothing was asked */
    unsigned level;         /* enum spawn_level */
    unsigned cgroup;        /* enum spawn_cgroup */
};
void run_result_init(struct run_result *result, uint64_t output_max);

/* An exit status for a shell: the program's own, 128+N for signal N, 124 time limit, 137 memory
 * limit, 153 output limit (128 + SIGXFSZ), the compiler's or 1 when there is no program, 125
 * when Hermes failed. A cancelled run counts as killed by `cancel_signal` (0: SIGINT). */
int run_exit_status(const struct run_result *result, int cancel_signal);
void run_result_done(struct run_result *result);
