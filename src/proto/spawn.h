/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the rest of Hermes and hermes-spawn say to each other: fixed-size structs over
 * SOCK_SEQPACKET sockets, descriptors by SCM_RIGHTS. No JSON, no text to parse.
 *
 * The control socket (descriptor 3 of hermes-spawn) has two phases. First the trusted side
 * registers: one SPAWN_SETUP, any number of SPAWN_MOUNT and SPAWN_ROOT, perhaps a
 * SPAWN_NETWORK, then SPAWN_SEAL, which is answered by a struct spawn_reply. From then on only
 * SPAWN_BOX is accepted; it carries a socket of its own for that box, on which the spawner
 * sends struct spawn_event and takes struct spawn_command. When either socket closes, what
 * belongs to it is killed. */

#include <stdint.h>

enum {
    SPAWN_PROTOCOL = 1,
    SPAWN_CONTROL_FD = 3,
    SPAWN_MAX_ROOTS = 64,
    SPAWN_MAX_ENTRIES = 384, /* of one root */
    SPAWN_MAX_EXECS = 8,     /* programs of one root */
    SPAWN_MAX_SOURCES = 64,  /* operator directories */
    SPAWN_MAX_BOX_MOUNTS = 8,
    SPAWN_MAX_ZYGOTES = 12,
    SPAWN_MAX_FORKS = 30,  /* alive, of one box; each has an id of its own */
    SPAWN_FORK_DEPTH = 14, /* forks of forks; every generation adds a Landlock layer */
    SPAWN_MAX_POOLS = 16,
    SPAWN_PATH_MAX = 256,
};

enum spawn_kind {
    SPAWN_SETUP = 1,
    SPAWN_ROOT,
    SPAWN_MOUNT,
    SPAWN_SEAL,
    SPAWN_BOX,
    SPAWN_PROBE,
    SPAWN_ZYGOTE,
    SPAWN_NETWORK, /* before the seal, with a socket on which the first box's network will come
                    */
    SPAWN_POOL,
};

/* Isolation levels; design.md section 5. */
enum spawn_level { LEVEL_NONE, LEVEL_PROCESS, LEVEL_STRONG, LEVEL_FULL };

/* Largest values any box may ask for; zero is never allowed in a box. */
struct spawn_limits {
    uint64_t memory_bytes;
    uint64_t disk_bytes; /* of /box, of /tmp and of /dev/shm each */
    uint64_t file_bytes; /* RLIMIT_FSIZE */
    uint64_t stack_bytes;
    uint32_t inodes; /* of each of the three file systems */
    uint32_t processes;
    uint32_t open_files;
    uint32_t cpu_milli; /* 1000 = one core */
    uint32_t cpu_s;     /* RLIMIT_CPU, the second line behind the cgroup */
    uint32_t reserved;
};

enum {
    SETUP_ALLOW_CONTROLS = 1 << 0, /* boxes may name barriers to leave out: selftest only */
};

struct spawn_setup {
    uint32_t kind; /* SPAWN_SETUP */
    uint32_t protocol;
    uint32_t flags;
    uint32_t min_level; /* refuse to seal below it */
    struct spawn_limits max;
    uint32_t uid_base; /* first host id of the range for boxes; 0 chooses */
    uint32_t uid_count;
    uint32_t networks;          /* network namespaces to keep ready (network.h) */
    uint32_t park_free_percent; /* nothing is parked while less of the host's memory is free */
    uint32_t processes_total;   /* of all boxes together. 0: no limit, and no group for them */
    uint32_t reserved;
};

/* The seal of who had the spawner work on other processors than his own until then: those that
 * it may use from now on, boxes too. Others send its first word alone. */
struct spawn_seal {
    uint32_t kind; /* SPAWN_SEAL */
    uint8_t cpus[128];
};

/* One thing in the tree of a root. Paths are absolute inside the box and exist in the tree. All
 * of it is trusted: it comes from the runtime table, before the seal. */
enum spawn_entry_kind {
    ENTRY_TREE = 1, /* the first: source is the directory that becomes the box's root */
    ENTRY_BIND,     /* path <- host path source, read-only; a directory or a file */
    ENTRY_DEVICE,   /* path <- the device node source */
    ENTRY_EXEC,     /* path is program number N of this root, in order of appearance */
};

enum {
    ENTRY_OPTIONAL = 1 << 0,    /* ENTRY_BIND: leave out when the host lacks it */
    ENTRY_HAS_DEVICES = 1 << 1, /* ENTRY_TREE: has device nodes, which shall work */
};

struct spawn_entry {
    uint32_t kind;
    uint32_t flags;
    char path[SPAWN_PATH_MAX];
    char source[SPAWN_PATH_MAX];
};

/* Followed in the same packet by `count` struct spawn_entry; the index is the order of arrival.
 */
struct spawn_root {
    uint32_t kind; /* SPAWN_ROOT */
    uint32_t count;
};

/* A host directory that boxes may be given; the index is the order of arrival. */
struct spawn_source {
    uint32_t kind; /* SPAWN_MOUNT */
    uint32_t writable;
    char path[SPAWN_PATH_MAX];
};

/* A program that is started once, before anybody needs it, and forked into boxes (zygote.h):
 * the first program of a root. A job (job.h) comes along with its arguments and environment. */
struct spawn_zygote {
    uint32_t kind; /* SPAWN_ZYGOTE */
    uint32_t root;
    uint32_t park;      /* boxes to keep ready, with these limits */
    uint32_t flags;     /* BOX_CHANNEL: it serves sessions; else it serves runs */
    uint32_t on_demand; /* started when the first box is asked for, not before */
    uint32_t reserved;
    struct spawn_limits limits;
};

/* A program that is started ahead in boxes of their own, where it waits for a job (pool.h). A
 * job comes along with its arguments and environment until then. */
struct spawn_pool {
    uint32_t kind; /* SPAWN_POOL */
    uint32_t root;
    uint32_t exec; /* the program that waits; it serves requests for program 0 of the root */
    uint32_t min;  /* boxes to keep ready, with these limits */
    uint32_t max;  /* and at most, while they are not enough */
    uint32_t reserved;
    uint64_t base_bytes; /* memory of the program in a cold box before it does anything, to be
                            counted for what it holds when it gets its job; 0: as much */
    struct spawn_limits limits;
};

/* What this host enforces, bit by bit; `hermes doctor` has one line for each. */
enum spawn_feature {
    FEATURE_USERNS,     /* user namespace with id maps */
    FEATURE_UID_RANGE,  /* a host uid of its own for every box */
    FEATURE_NAMESPACES, /* mount, pid, net, ipc, uts, cgroup */
    FEATURE_MOUNT_API,  /* open_tree, move_mount, mount_setattr */
    FEATURE_PROC,       /* a fresh /proc */
    FEATURE_PIVOT,      /* pivot_root */
    FEATURE_MEMORY,     /* cgroup memory limit */
    FEATURE_PIDS,       /* cgroup process limit */
    FEATURE_CPU,        /* cgroup CPU quota and accounting */
    FEATURE_KILL,       /* cgroup.kill */
    FEATURE_INTO,       /* clone3 into the cgroup */
    FEATURE_NNP,        /* no_new_privs */
    FEATURE_SECCOMP,    /* filter loads */
    FEATURE_LANDLOCK,   /* ABI >= 3 */
    FEATURE_OPENAT2,
    FEATURE_CLOSE_RANGE,
    FEATURE_PIDFD,
    FEATURE_COUNT
};

struct spawn_reply {
    uint32_t kind;   /* of the message it answers */
    int32_t error;   /* negative errno, or 0 */
    uint32_t step;   /* enum spawn_step that failed */
    uint32_t level;  /* enum spawn_level; valid in the answers to SPAWN_SEAL and SPAWN_PROBE */
    uint32_t cgroup; /* enum spawn_cgroup */
    uint32_t landlock_abi;
    uint32_t enforced;             /* bit per enum spawn_feature */
    int32_t reason[FEATURE_COUNT]; /* errno per feature that is not */
    char detail[SPAWN_PATH_MAX];   /* the path or name at fault, or "" */
};

enum spawn_cgroup { CGROUP_NONE, CGROUP_V1, CGROUP_V2, CGROUP_HYBRID };

struct spawn_box_mount {
    uint32_t source;           /* index of a SPAWN_MOUNT */
    uint32_t writable;         /* only if the source is */
    char path[SPAWN_PATH_MAX]; /* below /box or /mnt, checked again by the spawner */
};

enum {
    BOX_STDIN = 1 << 0,   /* a descriptor for stdin comes along; else /dev/null */
    BOX_COLLECT = 1 << 1, /* a descriptor for collected files comes along */
    BOX_WARM = 1 << 2,    /* a zygote or a pool of the root may serve it */
    BOX_CHANNEL = 1 << 3, /* a session: a socket comes along that becomes descriptor 3 of the
                             program, and the box outlives the program */
    BOX_FORKS = 1 << 4,   /* its program can be forked (fork.h) */
};

/* Barriers that a control leaves out; refused unless SETUP_ALLOW_CONTROLS. */
enum spawn_barrier {
    BARRIER_SECCOMP = 1 << 0,
    BARRIER_LANDLOCK = 1 << 1,
    BARRIER_NETNS = 1 << 2,
    BARRIER_IPCNS = 1 << 3,
    BARRIER_PIDNS_PROC = 1 << 4, /* a /proc without hidepid and subset=pid */
    BARRIER_MEMORY = 1 << 5,
    BARRIER_PIDS = 1 << 6,
    BARRIER_DISK = 1 << 7, /* tmpfs without size and inode limits, inside outer limits */
    BARRIER_CAPS = 1 << 8, /* payload keeps the capabilities of its user namespace */
    BARRIER_RLIMITS = 1 << 9,
    BARRIER_FDS = 1 << 10, /* descriptors of init stay open */
    BARRIER_USERNS_MAX = 1 << 11,
    BARRIER_UID = 1 << 12, /* payload runs with init's uid */
    BARRIER_NNP = 1 << 13, /* with seccomp and Landlock, which need it */
    BARRIER_CPU = 1 << 14,
    BARRIER_UTSNS = 1 << 15,
    BARRIER_CGROUPNS = 1 << 16,
};

/* Descriptors, in this order: the box's socket, the job memfd (run/package.h), stdout, stderr,
 * then stdin if BOX_STDIN, then the collect pipe if BOX_COLLECT or the channel, a unix stream
 * socket, if BOX_CHANNEL (which excludes BOX_COLLECT). */
struct spawn_box {
    uint32_t kind; /* SPAWN_BOX */
    uint32_t root;
    uint32_t exec; /* ENTRY_EXEC of that root */
    uint32_t flags;
    uint32_t remove; /* enum spawn_barrier bits */
    uint32_t mount_count;
    uint32_t owner; /* boxes with one number share their processors; see shares.h */
    uint32_t reserved;
    struct spawn_limits limits;
    struct spawn_box_mount mounts[SPAWN_MAX_BOX_MOUNTS];
};

/* All but the first two are for boxes with BOX_CHANNEL; another box is ended by them. */
enum spawn_command_kind {
    COMMAND_KILL = 1,
    COMMAND_USAGE,
    COMMAND_INTERRUPT, /* SIGINT to the program's process group */
    COMMAND_STOP,      /* ends every process of the box; EVENT_EXITED follows */
    COMMAND_RESTART,   /* after EVENT_EXITED: runs the program again, in the same box. With it
                          come a job, stdout, stderr and a channel */
    COMMAND_FILES,     /* with a unix stream socket, on which files are served (files.h) */
    COMMAND_FORK,      /* with the socket of a new box, its stdout, stderr and channel: that box
                          becomes a copy of this one (fork.h). Told on the new socket */
    COMMAND_PAUSE,     /* of a fork: nothing in it runs until COMMAND_RESUME */
    COMMAND_RESUME,
    COMMAND_TERMINAL, /* with a unix stream socket and a job: a terminal and a shell on it
                         (terminal.h) */
};

struct spawn_command {
    uint32_t kind;
    uint32_t is_idle; /* nobody waits for the box after this command (shares.h) */
};

enum spawn_event_kind {
    EVENT_STARTED = 1, /* the program may run: start_ns, setup_ns, baseline usage */
    EVENT_USAGE,       /* answer to COMMAND_USAGE */
    EVENT_EXITED,      /* BOX_COLLECT: the program ended, its files are being collected.
                          BOX_CHANNEL: it ended with wait_status, and nothing else runs in the
                          box either */
    EVENT_ENDED,       /* the box is gone and was accounted; the socket closes after it */
    EVENT_FAILED,      /* a step failed, the payload did not start; nothing is left */
    EVENT_INTERRUPTED, /* answer to COMMAND_INTERRUPT: the signal was sent */
    EVENT_FORKING, /* of a fork, with a socket for the copy, which comes before the others */
};

enum {
    ENDED_EXITED = 1 << 0,      /* wait_status is the payload's own */
    ENDED_OOM = 1 << 1,         /* the cgroup's memory limit killed */
    ENDED_PIDS = 1 << 2,        /* the box's own process limit was reached */
    ENDED_DISK = 1 << 3,        /* no free block or inode at the end */
    ENDED_EXEC_FAILED = 1 << 4, /* error has the errno of execve */
    STARTED_WARM = 1 << 6,      /* EVENT_STARTED: by a zygote, or in a parked box */
    ENDED_LEFTOVER = 1 << 5,    /* a cgroup could not be removed yet; it is quarantined */
    ENDED_SHORT = 1 << 7,   /* the machine, or the group that all boxes are in, had no memory
                               left, and somebody in the box was killed for it */
    ENDED_CROWDED = 1 << 8, /* a process was refused because all boxes together have
                               processes_total, or the host has none left */
};

struct spawn_event {
    uint32_t kind;
    uint32_t flags;
    int32_t wait_status; /* as waitpid(2) gives it; EVENT_FAILED in STEP_MOUNT: the number of
                            the mount, from 1 on, or 0 */
    int32_t error;       /* negative errno */
    uint32_t step;       /* enum spawn_step */
    uint32_t cgroup;
    uint64_t start_ns;     /* CLOCK_MONOTONIC at exec */
    uint64_t end_ns;       /* when the payload was reaped */
    uint64_t setup_ns;     /* request to exec */
    uint64_t cpu_ns;       /* since exec */
    uint64_t memory_bytes; /* EVENT_USAGE: now; EVENT_ENDED: peak. Baseline subtracted */
    uint64_t peak_bytes;   /* EVENT_USAGE: highest so far, the same way */
};

/* Steps of the set-up, in order. A failure names one; spawn_step_text() is what people read. */
#define SPAWN_STEPS(X)                                                                         \
    X(STEP_NONE, "none")                                                                       \
    X(STEP_REQUEST, "check the request")                                                       \
    X(STEP_SPAWNER, "start the spawner")                                                       \
    X(STEP_ROOT, "prepare the root tree")                                                      \
    X(STEP_SLOT, "claim a uid slot")                                                           \
    X(STEP_CGROUP, "make the control group")                                                   \
    X(STEP_CGROUP_LIMIT, "set a limit in the control group")                                   \
    X(STEP_CHANNELS, "make the pipes")                                                         \
    X(STEP_CLONE, "clone into new namespaces")                                                 \
    X(STEP_IDMAP, "map the box's ids")                                                         \
    X(STEP_RELEASE, "release the box")                                                         \
    X(STEP_CGROUP_JOIN, "put the box into its control group")                                  \
    X(STEP_FDS, "close descriptors")                                                           \
    X(STEP_IDENTITY, "take the box's identity")                                                \
    X(STEP_SESSION, "start a session of its own")                                              \
    X(STEP_CGROUPNS, "hide the control group tree")                                            \
    X(STEP_NETWORK, "bring up loopback")                                                       \
    X(STEP_USERNS_MAX, "forbid nested user namespaces")                                        \
    X(STEP_TREE, "clone the root tree")                                                        \
    X(STEP_TMPFS, "mount the box's own file systems")                                          \
    X(STEP_MOUNT, "mount a shared directory")                                                  \
    X(STEP_PROC, "mount /proc")                                                                \
    X(STEP_PIVOT, "pivot into the root tree")                                                  \
    X(STEP_FORK, "fork the program")                                                           \
    X(STEP_DROP, "drop privileges")                                                            \
    X(STEP_RLIMITS, "set resource limits")                                                     \
    X(STEP_LANDLOCK, "restrict the file system with Landlock")                                 \
    X(STEP_FILES, "write the files of the run")                                                \
    X(STEP_STDIO, "connect stdin, stdout and stderr")                                          \
    X(STEP_SECCOMP, "load the system call filter")                                             \
    X(STEP_EXEC, "execute the program")                                                        \
    X(STEP_INIT, "watch the program")                                                          \
    X(STEP_COPY_STOP, "stop the copy of the interpreter")                                      \
    X(STEP_COPY_CONFINE, "confine the copy of the interpreter")                                \
    X(STEP_COPY_FILES, "copy the files")                                                       \
    X(STEP_COPY_CHECK, "check the copy of the interpreter")

enum spawn_step {
#define STEP_ENUM(name, text) name,
    SPAWN_STEPS(STEP_ENUM)
#undef STEP_ENUM
        STEP_COUNT
};
