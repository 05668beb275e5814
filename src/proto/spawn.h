/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The messages between hermes-spawn and the rest of Hermes: fixed-size structs over
 * SOCK_SEQPACKET sockets, descriptors by SCM_RIGHTS. No JSON, no text to parse.
 *
 * The control socket (descriptor 3 of hermes-spawn) has two phases. First the trusted side
 * registers: one SPAWN_SETUP, any number of SPAWN_MOUNT, then of SPAWN_ROOT, then of
 * SPAWN_IMAGE, SPAWN_ZYGOTE and SPAWN_POOL, perhaps a SPAWN_NETWORK, then SPAWN_SEAL, which is
 * answered by a struct spawn_reply. (SPAWN_PROBE, for `hermes doctor`, is answered the same way
 * and seals nothing.) After the seal only SPAWN_BOX and SPAWN_IMAGE are accepted. SPAWN_BOX
 * carries a socket for that box, on which the spawner sends struct spawn_event and takes struct
 * spawn_command. When a box's socket closes, the box is killed; when the control socket closes,
 * all boxes are. SPAWN_IMAGE carries a socket, too, and makes one more root (spawn/image.h). */

#include <stdint.h>

enum {
    SPAWN_PROTOCOL = 1,
    SPAWN_CONTROL_FD = 3,
    SPAWN_MAX_ROOTS = 64,
    SPAWN_MAX_ENTRIES = 384, /* of one root */
    SPAWN_MAX_EXECS = 8,     /* programs of one root */
    SPAWN_MAX_SOURCES = 64,  /* directories of the operator */
    SPAWN_MAX_BOX_MOUNTS = 8,
    SPAWN_MAX_ZYGOTES = 24,
    SPAWN_MAX_FORKS = 30, /* live copies of one box; each has an id of its own, out of one block
                             (spawn/ids.h) */
    /* copies of copies; each generation adds a Landlock layer, and Linux allows 16 */
    SPAWN_FORK_DEPTH = 14,
    SPAWN_MAX_POOLS = 16,
    SPAWN_PATH_MAX = 256,
    SPAWN_MISSING = 128,
    SPAWN_MAX_IMAGES = 32, /* roots that SPAWN_IMAGE has made */
    SPAWN_MAX_LAYERS = 16, /* of one image */
    SPAWN_DIGEST = 32,     /* bytes of a layer's SHA-256 */
};

enum spawn_kind {
    SPAWN_SETUP = 1,
    SPAWN_ROOT,
    SPAWN_MOUNT,
    SPAWN_SEAL,
    SPAWN_BOX,
    SPAWN_PROBE,
    SPAWN_ZYGOTE,
    SPAWN_NETWORK, /* before the seal, with a socket on which the first box's network namespace
                      will come */
    SPAWN_POOL,
    SPAWN_EGRESS, /* before the seal, with a socket on which sockets of hermes-egress will come,
                     one for each that is started (egress.h) */
    SPAWN_IMAGE,  /* struct spawn_image */
};

/* Isolation levels: docs/security.md. */
enum spawn_level { LEVEL_NONE, LEVEL_PROCESS, LEVEL_STRONG, LEVEL_FULL };

/* Limits of a box. In struct spawn_setup: the largest values that any box may ask for. In a box
 * zero is never allowed. */
struct spawn_limits {
    uint64_t memory_bytes;
    uint64_t disk_bytes; /* of /box, /tmp and /dev/shm, each */
    uint64_t file_bytes; /* RLIMIT_FSIZE */
    uint64_t stack_bytes;
    uint32_t inodes; /* of each of the three file systems */
    uint32_t processes;
    uint32_t open_files;
    uint32_t cpu_milli; /* 1000 = one core */
    uint32_t cpu_s;     /* RLIMIT_CPU in seconds, a second line of defence behind the cgroup */
    uint32_t reserved;
};

enum {
    /* boxes may name barriers to leave out: for the self test only */
    SETUP_ALLOW_CONTROLS = 1 << 0,
    /* a network namespace that served one owner may serve another (spawn/network/network.h) */
    SETUP_SHARE_NETWORKS = 1 << 1,
};

struct spawn_setup {
    uint32_t kind; /* SPAWN_SETUP */
    uint32_t protocol;
    uint32_t flags;
    uint32_t min_level; /* enum spawn_level; a host below it is not sealed */
    struct spawn_limits max;
    uint32_t uid_base; /* first host id of the range for boxes; 0: the spawner chooses */
    uint32_t uid_count;
    uint32_t networks; /* network namespaces to keep ready (spawn/network/network.h); 0: not a
                          server, nothing is kept */
    uint32_t park_free_percent; /* no ready box is kept while less than this part of the host's
                                   memory is available; 0: no check */
    uint32_t processes_total; /* of all boxes together. 0: no limit, and no control group around
                                 them */
    uint32_t reserved;
};

/* Long form of SPAWN_SEAL: restores the CPU affinity that spawner_send_away() changed. Clients
 * that did not change it send `kind` alone. */
struct spawn_seal {
    uint32_t kind; /* SPAWN_SEAL */
    uint8_t cpus[128];
};

/* One part of a root tree. Paths are absolute inside the box and exist in the tree. All of it
 * is trusted: it comes from the runtime table, before the seal. */
enum spawn_entry_kind {
    ENTRY_TREE = 1, /* must come first: source, .../ROOT_TREE, becomes the box's root */
    ENTRY_BIND,     /* host path `source`, read-only, at `path`; a directory or a file */
    ENTRY_DEVICE,   /* the device node `source` at `path` */
    ENTRY_EXEC, /* `path` is the next program of this root; programs are numbered in order of
                   appearance */
    ENTRY_MASK, /* an empty file at `path` */
};

/* A box shows the path of a mount's source in /proc/self/mountinfo, but only of mounts at or
 * below its own root. So the directory that holds nothing but the tree is mounted, and the box
 * changes its root to the tree: then there is no line for the mount. A box with BOX_FORKS needs
 * the right to make a user namespace, which the kernel denies after such a change. Its root is
 * a copy of the tree in memory (ENTRY_IN_MEMORY). */
#define ROOT_TREE "tree"

enum {
    ENTRY_OPTIONAL = 1 << 0,    /* ENTRY_BIND: skip when the host lacks the source */
    ENTRY_HAS_DEVICES = 1 << 1, /* ENTRY_TREE: its device nodes must work */
    ENTRY_IN_MEMORY = 1 << 2,   /* ENTRY_TREE: copy it; for boxes with BOX_FORKS only */
};

struct spawn_entry {
    uint32_t kind;
    uint32_t flags;
    char path[SPAWN_PATH_MAX];
    char source[SPAWN_PATH_MAX];
};

/* Followed in the same packet by `count` struct spawn_entry. Boxes name the root by its order
 * of arrival. */
struct spawn_root {
    uint32_t kind; /* SPAWN_ROOT */
    uint32_t count;
};

enum spawn_writable {
    SOURCE_READ_ONLY,
    SOURCE_WRITABLE, /* an error, if its file system has no id-mapped mounts */
    SOURCE_TRY,      /* read-only in that case */
    SOURCE_LAYERS,   /* the layers of images, then those of the operator's own images: no box
                      * may mount these or any later source (struct spawn_image) */
};

/* A directory of the operator that boxes may mount. Boxes name it by its order of arrival. */
struct spawn_source {
    uint32_t kind;     /* SPAWN_MOUNT */
    uint32_t writable; /* enum spawn_writable */
    char path[SPAWN_PATH_MAX];
};

/* A zygote: the first program of a root, started once and forked into boxes (spawn/zygote.h). A
 * package (package.h) with its arguments and environment comes along. */
struct spawn_zygote {
    uint32_t kind; /* SPAWN_ZYGOTE */
    uint32_t root;
    uint32_t park;  /* ready boxes to keep, with these limits */
    uint32_t flags; /* BOX_CHANNEL: it serves sessions, else runs. BOX_FORKS: its sessions can
                       be copied */
    uint32_t on_demand; /* started when the first box is requested, not before */
    uint32_t idle_s;    /* it ends after this time without a request, and when memory is
                         * short; 0: it stays. Such a zygote has no twin */
    struct spawn_limits limits;
};

/* A pool: a program that is started ahead in boxes of its own and waits for its package there
 * (spawn/pool.h). A package with arguments and environment for the waiting program comes
 * along. */
struct spawn_pool {
    uint32_t kind; /* SPAWN_POOL */
    uint32_t root;
    /* the program that waits; the pool serves requests for program 0 of the root */
    uint32_t exec;
    uint32_t min; /* ready boxes to keep, with these limits */
    uint32_t max; /* most ready boxes, while `min` are not enough */
    uint32_t reserved;
    /* memory that the program holds in a cold box before it does anything. It is counted
     * instead of the memory that the program holds when it gets its package. 0: no fixed value;
     * count the memory at that moment */
    uint64_t base_bytes;
    struct spawn_limits limits;
};

/* Where the layers of an image are in a box: a directory of every root tree. */
#define IMAGE_PLACE "opt"

/* In build boxes, where IMAGE_PLACE is a link, or which have BOX_ROOT: the layers that are
 * built upon. */
#define IMAGE_BASE "base"

enum spawn_image_flags {
    IMAGE_WHOLE =
        1 << 0,         /* the layers are the box's root, below what the registered root has */
    IMAGE_TOP = 1 << 1, /* with IMAGE_WHOLE: for boxes with BOX_FORKS or BOX_ROOT */
};

/* A registered root with layers at IMAGE_PLACE. Before the seal it becomes a root of the table,
 * which may have zygotes; its layers are the operator's, in the second directory of
 * SOURCE_LAYERS, and it stays. After the seal: a unix seqpacket socket comes along, on which a
 * struct spawn_image_reply answers. When the socket closes, the new root is gone; boxes that
 * have started from it go on. Layers lie in the directory of SOURCE_LAYERS, each in HEX/tree,
 * where HEX is its digest in hexadecimal digits. */
struct spawn_image {
    uint32_t kind; /* SPAWN_IMAGE */
    uint32_t root; /* a registered one */
    uint32_t count;
    uint32_t flags;                                 /* enum spawn_image_flags */
    uint8_t layers[SPAWN_MAX_LAYERS][SPAWN_DIGEST]; /* the newest first */
};

struct spawn_image_reply {
    int32_t error; /* negative errno, or 0 */
    uint32_t root; /* number of the new root, for SPAWN_BOX */
};

/* What this host enforces, one bit each; `hermes doctor` prints one line for each. */
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
    FEATURE_LANDLOCK,   /* ABI 3 or newer */
    FEATURE_OPENAT2,
    FEATURE_CLOSE_RANGE,
    FEATURE_PIDFD,
    FEATURE_COUNT
};

struct spawn_reply {
    uint32_t kind;   /* of the message that it answers */
    int32_t error;   /* negative errno, or 0 */
    uint32_t step;   /* enum spawn_step that failed */
    uint32_t level;  /* enum spawn_level; valid in the answers to SPAWN_SEAL and SPAWN_PROBE */
    uint32_t cgroup; /* enum spawn_cgroup */
    uint32_t landlock_abi;
    uint32_t enforced;             /* bit per enum spawn_feature */
    int32_t reason[FEATURE_COUNT]; /* negative errno for each feature that is not enforced */
    char detail[SPAWN_PATH_MAX];   /* the path or name at fault, or "" */
    int32_t network_error; /* whether boxes can have a network: 0; -ENOSYS when there was no
                              SPAWN_EGRESS; or why a kit cannot be installed */
    char network_missing[SPAWN_MISSING]; /* names of kit.h that this host lacks, with ", "
                                          * between them, or "". IPv6 alone is not an error */
};

enum spawn_cgroup { CGROUP_NONE, CGROUP_V1, CGROUP_V2, CGROUP_HYBRID };

struct spawn_box_mount {
    uint32_t source;           /* index of a SPAWN_MOUNT */
    uint32_t writable;         /* allowed only if the source is writable */
    char path[SPAWN_PATH_MAX]; /* below /box or /mnt; checked again in the box */
};

enum {
    BOX_STDIN = 1 << 0,   /* a descriptor for stdin comes along; else stdin is /dev/null */
    BOX_COLLECT = 1 << 1, /* a pipe for collected files comes along */
    BOX_WARM = 1 << 2,    /* a zygote or a pool of the root may serve it */
    BOX_CHANNEL = 1 << 3, /* a session: a socket comes along that becomes descriptor 3 of the
                             program, and the box outlives its program */
    BOX_FORKS = 1 << 4,   /* the session can be copied (spawn/copy.h) */
    BOX_NETWORK = 1 << 5, /* the end of a network channel comes along, as the last descriptor
                             (network.h) */
    BOX_ROOT = 1 << 6,    /* builds upon a whole root (IMAGE_TOP): its root is an empty file
                             system in memory, the image is at IMAGE_BASE, and the payload is
                             uid 0 of the box's user namespace, without any capability */
};

/* Barriers that a control of a test leaves out; refused unless SETUP_ALLOW_CONTROLS. */
enum spawn_barrier {
    BARRIER_SECCOMP = 1 << 0,
    BARRIER_LANDLOCK = 1 << 1,
    BARRIER_NETNS = 1 << 2,
    BARRIER_IPCNS = 1 << 3,
    BARRIER_PIDNS_PROC = 1 << 4, /* a /proc without hidepid and subset=pid */
    BARRIER_MEMORY = 1 << 5,
    BARRIER_PIDS = 1 << 6,
    /* tmpfs without size and inode limits; the memory limit still holds */
    BARRIER_DISK = 1 << 7,
    BARRIER_CAPS = 1 << 8, /* the payload keeps the capabilities of its user namespace */
    BARRIER_RLIMITS = 1 << 9,
    BARRIER_FDS = 1 << 10, /* the init link stays open over exec */
    BARRIER_USERNS_MAX = 1 << 11,
    BARRIER_UID = 1 << 12, /* the payload runs with box init's uid */
    BARRIER_NNP = 1 << 13, /* leaves out seccomp and Landlock, too: they need it */
    BARRIER_CPU = 1 << 14,
    BARRIER_UTSNS = 1 << 15,
    BARRIER_CGROUPNS = 1 << 16,
};

/* Descriptors, in this order: the box's socket, the package (package.h), stdout, stderr, then
 * stdin if BOX_STDIN, then the collect pipe if BOX_COLLECT or the channel, a unix stream
 * socket, if BOX_CHANNEL (which excludes BOX_COLLECT). */
#define SPAWN_OWNER_IDLE UINT32_MAX /* the owner of boxes that no request waits for */
struct spawn_box {
    uint32_t kind; /* SPAWN_BOX */
    uint32_t root;
    /* number of a program of that root (ENTRY_EXEC) */
    uint32_t exec;
    uint32_t flags;
    uint32_t remove; /* enum spawn_barrier bits */
    uint32_t mount_count;
    uint32_t owner; /* boxes with the same number share one part of the processors
                       (spawn/shares.h) and may have each other's network namespace
                       (spawn/network/network.h) */
    uint32_t reserved;
    struct spawn_limits limits;
    struct spawn_box_mount mounts[SPAWN_MAX_BOX_MOUNTS];
};

/* Any box takes COMMAND_KILL and COMMAND_USAGE. The other commands are for boxes with
 * BOX_CHANNEL; they end any other box. */
enum spawn_command_kind {
    COMMAND_KILL = 1,
    COMMAND_USAGE,
    COMMAND_INTERRUPT, /* SIGINT to the program's process group */
    COMMAND_STOP,      /* ends every process of the session; EVENT_EXITED follows */
    COMMAND_RESTART,   /* after EVENT_EXITED: runs the program again in the same box. A package,
                          stdout, stderr and a channel come along */
    COMMAND_FILES,     /* with a unix stream socket, on which a helper serves files (files.h) */
    COMMAND_FORK,  /* with the socket of a new box, its stdout, stderr and channel: the new box
                    * becomes a copy of this one (spawn/copy.h). The events come on the new
                    * socket. With limits the copy is a run: they are its own, so are its
                    * network and IPC namespaces, and the end of its program is reported as
                    * that of a run; its stdin may come as a fifth descriptor. Only a box that
                    * is not a copy itself can be copied as a run */
    COMMAND_PAUSE, /* of a copy: freezes it until COMMAND_RESUME */
    COMMAND_RESUME,
    COMMAND_TERMINAL, /* with a unix stream socket and a package: starts a shell on a terminal
                         (terminal.h) */
    /* with the end of a network channel (network.h): gives a box that has none, and its copies
     * and originals, a network. EVENT_NETWORK answers */
    COMMAND_NETWORK,
    /* with a unix seqpacket socket: the live box gets the layers of the image's root `root`
     * at IMAGE_PLACE, over what was there. A struct spawn_image_reply answers on the socket */
    COMMAND_IMAGE,
};

struct spawn_command {
    uint32_t kind;
    uint32_t is_idle;  /* no request waits for the box after this command (spawn/shares.h) */
    uint32_t root;     /* COMMAND_IMAGE: the number that SPAWN_IMAGE gave */
    uint32_t is_alone; /* COMMAND_FORK: the copy shares no network and no IPC with its family */
    struct spawn_limits limits; /* COMMAND_FORK: of a run; memory_bytes 0: a copy of a session,
                                   with the limits of the original */
};

enum spawn_event_kind {
    EVENT_STARTED = 1, /* the program may run: start_ns, setup_ns */
    EVENT_USAGE,       /* answer to COMMAND_USAGE */
    EVENT_EXITED, /* BOX_COLLECT: the program ended, its files are being collected. BOX_CHANNEL:
                     the program ended with wait_status, and no other process of the session is
                     left */
    EVENT_ENDED,  /* the box is gone and was accounted; then the socket closes */
    EVENT_FAILED, /* a step failed and the payload did not start; nothing is left */
    EVENT_INTERRUPTED, /* answer to COMMAND_INTERRUPT: the signal was sent */
    EVENT_FORKING, /* of a copy: comes first, with the socket on which the copied interpreter
                      says hello */
    EVENT_PLACE,   /* of a session in another place (place.h): its state */
    EVENT_NETWORK, /* answer to COMMAND_NETWORK: `error` is 0, or why the box has no network;
                      -EEXIST: it has one */
};

enum {
    ENDED_EXITED = 1 << 0, /* the payload ended by itself: wait_status is valid */
    ENDED_OOM = 1 << 1,    /* the memory limit of the box killed a process */
    ENDED_PIDS = 1 << 2,   /* the process limit of the box was reached */
    ENDED_DISK = 1 << 3,   /* a file system of the box had no free block or inode at the end */
    ENDED_EXEC_FAILED = 1 << 4, /* `error` is the errno of execve */
    STARTED_WARM = 1 << 6,      /* EVENT_STARTED: by a zygote, or in a ready box */
    ENDED_SHORT = 1 << 7, /* a process of the box was killed because the host, or the group that
                             all boxes are in, had no memory left */
    ENDED_CROWDED = 1 << 8, /* a process was refused because all boxes together have
                               processes_total, or the host has no process left */
};

struct spawn_event {
    uint32_t kind;
    uint32_t flags;
    int32_t wait_status; /* as waitpid(2) gives it. EVENT_FAILED in STEP_MOUNT: the number of
                            the mount, from 1 on, or 0. EVENT_FAILED in STEP_KIT, EVENT_NETWORK
                            with an error: enum kit_part (kit.h) */
    int32_t error;       /* negative errno */
    uint32_t step;       /* enum spawn_step */
    uint32_t cgroup;
    uint64_t start_ns;     /* CLOCK_MONOTONIC when the program began */
    uint64_t end_ns;       /* when the payload was reaped */
    uint64_t setup_ns;     /* from the request to the start of the program */
    uint64_t cpu_ns;       /* since the start of the program */
    uint64_t memory_bytes; /* EVENT_USAGE: now; EVENT_ENDED: peak. The baseline is subtracted */
    uint64_t peak_bytes;   /* EVENT_USAGE: peak so far, without the baseline */
};

/* Steps that can fail, in about the order in which they run. spawner_step_text() returns the
 * text for users. */
#define SPAWN_STEPS(X)                                                                         \
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
    X(STEP_KIT, "prepare the box's network")                                                   \
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
