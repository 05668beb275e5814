/* SPDX-License-Identifier: Apache-2.0 */

/* Finds the cgroup trees of this machine and makes the spawner's own group in them.
 * cgroup/leaf.c handles the leaves in the trees that were found. */

#include "setup/setup.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The leaf for processes that stood in the way of a v2 group with limited children. */
#define SERVICE_LEAF "hermes.svc"

/* Bytes of a file in /proc or a cgroup that are read. */
enum { TEXT_MAX = 65536 };

/* Whether we are root on the host, not merely in our own user namespace; set by
 * setup_find_groups(). */
static bool is_root;

struct mount_line {
    char *root;
    char *point;
    bool v2;
    char *options; /* of the super block */
};

/* Splits one line of mountinfo; false when it is not a cgroup mount. */
static bool parse_mount(char *line, struct mount_line *ret)
{
    char *dash = strstr(line, " - ");
    if (!dash)
        return false;
    *dash = '\0';
    char *type = dash + 3;
    if (str_has_prefix(type, "cgroup2 "))
        ret->v2 = true;
    else if (str_has_prefix(type, "cgroup "))
        ret->v2 = false;
    else
        return false;
    ret->options = strrchr(type, ' ') + 1;
    char *save = NULL;
    char *field = strtok_r(line, " ", &save);
    for (int i = 0; field && i < 3; i++)
        field = strtok_r(NULL, " ", &save);
    ret->root = field;
    ret->point = strtok_r(NULL, " ", &save);
    return ret->root && ret->point;
}

static unsigned use_of_options(const char *options)
{
    static const struct {
        const char *name;
        unsigned use;
    } names[] = {{"memory", TREE_MEMORY}, {"pids", TREE_PIDS}, {"cpu", TREE_CPU},
        {"cpuacct", TREE_CPUACCT}};
    unsigned use = 0;
    for (const char *p = options; *p;) {
        size_t n = strcspn(p, ", \n");
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            if (strlen(names[i].name) == n && strncmp(p, names[i].name, n) == 0)
                use |= names[i].use;
        }
        p += n;
        p += strspn(p, ", \n");
    }
    return use;
}

/* Our own path in a tree, from the text of /proc/self/cgroup. The v2 line begins with "0::"; a
 * v1 line lists the controllers between colons. */
static bool own_path(const char *text, bool v2, unsigned use, char *out, size_t size)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *names = strchr(line, ':');
        const char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            return false;
        char list[128];
        (void)snprintf(list, sizeof(list), "%.*s", (int)(path - names - 1), names + 1);
        if (v2 ? !str_has_prefix(line, "0::") : !(use_of_options(list) & use))
            continue;
        (void)snprintf(out, size, "%.*s", (int)strcspn(path + 1, "\n"), path + 1);
        return true;
    }
    return false;
}

/* Whether the group was delegated to us: 1 or 0, or negative errno. A wrong guess could put
 * boxes into a group that is not ours. */
static int is_delegated(int fd)
{
    static const char *const names[] = {"user.delegate", "trusted.delegate"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char value[8];
        if (fgetxattr(fd, names[i], value, sizeof(value)) > 0)
            return 1;
        if (errno != ENODATA && errno != EOPNOTSUPP)
            return -errno;
    }
    return 0;
}

static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n) {
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    }
    return false;
}

/* Whether we can make children with limits in a v2 group: we may write to the group, and its
 * controllers are enabled for children. */
static bool can_limit_children(int fd)
{
    char enabled[512];
    return faccessat(fd, "cgroup.procs", W_OK, AT_EACCESS) == 0 &&
           faccessat(fd, ".", W_OK, AT_EACCESS) == 0 &&
           fs_read_small(fd, "cgroup.subtree_control", enabled, sizeof(enabled)) > 0 &&
           list_has(enabled, "memory") && list_has(enabled, "pids");
}

/* Opens the group in which leaves are made.
 *
 * - Root, in a group that systemd delegated to us: that group.
 * - Root otherwise: the top of the mount (in a container, the container's group). It is the
 * same for every start, so a later start finds the leaves that a killed spawner left.
 * - Any other user: the group that we are in. On v2 a group with processes cannot have children
 *   with limits. There we take the group above it, if can_limit_children() says that it will
 * do. */
static int open_parent(const struct mount_line *m, const char *own)
{
    char path[4096];
    const char *below = own;
    size_t n = strlen(m->root);
    if (!str_eq(m->root, "/"))
        below = strncmp(own, m->root, n) == 0 ? own + n : "";
    (void)snprintf(path, sizeof(path), "%s%s", m->point, str_eq(below, "/") ? "" : below);
    cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        return -errno;
    bool has_above = fd >= 0 && below[0] && !str_eq(below, "/");
    if (fd >= 0 && !has_above)
        return take_fd(&fd); /* the top itself */
    cleanup_close int above =
        has_above ? openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (is_root) {
        int own_group = fd >= 0 ? is_delegated(fd) : 0;
        if (own_group != 0)
            return own_group < 0 ? own_group : take_fd(&fd);
        int one_above = above >= 0 ? is_delegated(above) : 0;
        /* a spawner that ran before has moved us into a leaf of the delegated group */
        if (one_above != 0)
            return one_above < 0 ? one_above : take_fd(&above);
        close_fd(&fd);
        fd = open(m->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } else if (m->v2 && above >= 0 && can_limit_children(above)) {
        return take_fd(&above);
    }
    return fd < 0 ? -errno : take_fd(&fd);
}

/* Moves the processes of a v2 group into a leaf of their own. The kernel requires that before
 * the group may limit its children. */
static int move_processes(int fd)
{
    if (mkdirat(fd, SERVICE_LEAF, 0755) < 0 && errno != EEXIST)
        return -errno;
    char text[TEXT_MAX];
    ssize_t n = fs_read_small(fd, "cgroup.procs", text, sizeof(text));
    if (n < 0)
        return (int)n;
    char *save = NULL;
    for (char *pid = strtok_r(text, "\n", &save); pid; pid = strtok_r(NULL, "\n", &save)) {
        int r = fs_write_once(fd, SERVICE_LEAF "/cgroup.procs", pid);
        if (r < 0 && r != -ESRCH)
            return r;
    }
    return 0;
}

static const struct {
    const char *name;
    const char *enable;
    unsigned use;
} v2_controllers[] = {
    {"memory", "+memory", TREE_MEMORY},
    {"pids", "+pids", TREE_PIDS},
    {"cpu", "+cpu", TREE_CPU},
};

/* Enables for the children of a v2 group the controllers that it has; *ret_use says which. */
static int enable_controllers(int fd, unsigned *ret_use)
{
    char have[512];
    char enabled[512];
    if (fs_read_small(fd, "cgroup.controllers", have, sizeof(have)) < 0 ||
        fs_read_small(fd, "cgroup.subtree_control", enabled, sizeof(enabled)) < 0)
        return -errno;
    *ret_use = TREE_KILL;
    for (size_t i = 0; i < sizeof(v2_controllers) / sizeof(v2_controllers[0]); i++) {
        if (!list_has(have, v2_controllers[i].name))
            continue;
        if (!list_has(enabled, v2_controllers[i].name)) {
            int r = fs_write_once(fd, "cgroup.subtree_control", v2_controllers[i].enable);
            if (r == -EBUSY && move_processes(fd) == 0)
                r = fs_write_once(fd, "cgroup.subtree_control", v2_controllers[i].enable);
            if (r < 0)
                return r;
        }
        *ret_use |= v2_controllers[i].use;
    }
    return 0;
}

/* Docker mounts the container's own groups read-only, v1 and v2. With CAP_SYS_ADMIN they can be
 * made writable in our mount namespace, which no other process sees. The directory that is open
 * already lies on the same mount and changes with it. */
static void make_writable(const char *point)
{
    (void)mount(
        NULL, point, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

static int add_tree(
    struct cgroup_host *host, const struct mount_line *m, const char *own, unsigned use)
{
    if (host->count == CGROUP_MAX_TREES)
        return -E2BIG;
    cleanup_close int fd = open_parent(m, own);
    struct statfs fs;
    if (fd < 0)
        return fd;
    if (fstatfs(fd, &fs) < 0)
        return -errno;
    /* something else is mounted over it */
    if (fs.f_type != (m->v2 ? CGROUP2_SUPER_MAGIC : CGROUP_SUPER_MAGIC))
        return -ENOENT;
    int locked = faccessat(fd, ".", W_OK, AT_EACCESS) < 0 ? -errno : 0;
    if (locked == -EROFS) {
        make_writable(m->point);
        locked = faccessat(fd, ".", W_OK, AT_EACCESS) < 0 ? -errno : 0;
    }
    int r = m->v2 ? enable_controllers(fd, &use) : 0;
    if (r < 0 || locked < 0) /* not delegated to us */
        return r < 0 ? r : locked;
    host->trees[host->count++] =
        (struct cgroup_tree){.use = use & ~host->use, .v2 = m->v2, .fd = fd, .top_fd = fd};
    (void)take_fd(&fd);
    host->use |= use;
    return 0;
}

/* Adds a mounted tree if it has a use that no tree before it has; `self` is the text of
 * /proc/self/cgroup. */
static void consider(struct cgroup_host *host, const struct mount_line *m, const char *self)
{
    char own[4096];
    unsigned use = m->v2 ? TREE_KILL : use_of_options(m->options);
    if (!(use & ~host->use) || !own_path(self, m->v2, use, own, sizeof(own)))
        return;
    int r = add_tree(host, m, own, use);
    if (r < 0)
        host->reason = r;
}

/* Looks at the places where distributions mount the trees, for each line of /proc/self/cgroup.
 * Reading /proc/self/mountinfo instead takes 0.1 ms here, and far more on hosts with
 * containers. */
static void find_in_layout(struct cgroup_host *host, const char *self)
{
    struct statfs top;
    bool unified = statfs("/sys/fs/cgroup", &top) == 0 && top.f_type == CGROUP2_SUPER_MAGIC;
    for (const char *line = self; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char names[128];
        char point[192];
        const char *colon = strchr(line, ':');
        if (!colon)
            return;
        (void)snprintf(names, sizeof(names), "%.*s", (int)strcspn(colon + 1, ":\n"), colon + 1);
        bool v2 = !names[0];
        (void)snprintf(point, sizeof(point), "/sys/fs/cgroup%s%s", unified ? "" : "/",
            unified ? ""
            : v2    ? "unified"
                    : names);
        struct mount_line m = {.root = (char *)"/", .point = point, .v2 = v2, .options = names};
        /* A tree for cpuacct alone is not needed: on a hybrid machine the v2 line comes last
         * and counts CPU time. */
        if ((v2 || !unified) && use_of_options(names) != TREE_CPUACCT)
            consider(host, &m, self);
    }
}

/* Looks at all mounts. */
static void find_in_mounts(struct cgroup_host *host, const char *self)
{
    static char mounts[TEXT_MAX * 4];
    if (fs_read_small(AT_FDCWD, "/proc/self/mountinfo", mounts, sizeof(mounts)) < 0) {
        host->reason = -errno;
        return;
    }
    /* A tree for cpuacct alone is worth it only where no v2 tree counts CPU time. */
    struct mount_line accounts = {0};
    char *save = NULL;
    for (char *line = strtok_r(mounts, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct mount_line m;
        if (!parse_mount(line, &m))
            continue;
        if (!m.v2 && use_of_options(m.options) == TREE_CPUACCT)
            accounts = m;
        else
            consider(host, &m, self);
    }
    if (accounts.root && !(host->use & (TREE_KILL | TREE_CPUACCT)))
        consider(host, &accounts, self);
}

static bool is_complete(const struct cgroup_host *host)
{
    const unsigned needed = TREE_MEMORY | TREE_PIDS | TREE_CPU | TREE_KILL;
    return (host->use & needed) == needed;
}

static void find_trees(struct cgroup_host *host)
{
    char self[TEXT_MAX / 8];
    if (fs_read_small(AT_FDCWD, "/proc/self/cgroup", self, sizeof(self)) < 0) {
        host->reason = -errno;
        return;
    }
    find_in_layout(host, self);
    if (!is_complete(host)) {
        for (unsigned i = 0; i < host->count; i++)
            close_fd(&host->trees[i].fd);
        *host = (struct cgroup_host){0};
        find_in_mounts(host, self);
    }
    bool v1 = false, v2 = false;
    for (unsigned i = 0; i < host->count; i++) {
        v1 = v1 || !host->trees[i].v2;
        v2 = v2 || host->trees[i].v2;
    }
    host->mode = v2 && v1 ? CGROUP_HYBRID : v2 ? CGROUP_V2 : v1 ? CGROUP_V1 : CGROUP_NONE;
}

void setup_find_groups(struct cgroup_host *host, bool rootless)
{
    is_root = !rootless;
    *host = (struct cgroup_host){.mode = CGROUP_NONE};
    find_trees(host);
}

/* Sets the limits of our own group; a value of 0 is not written. */
static int limit_group(const struct cgroup_tree *tree, int fd, uint32_t processes)
{
    enum { SHARES_USUAL = 1024, SHARES_MAX = 262144, V2_USUAL = 100, V2_MAX = 10000 };
    cpu_set_t set;
    unsigned cores =
        sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    unsigned weight = 2 * cores * (tree->v2 ? V2_USUAL : SHARES_USUAL);
    unsigned most = tree->v2 ? V2_MAX : SHARES_MAX;
    const struct {
        unsigned use;
        const char *file;
        unsigned value;
    } files[] = {{TREE_PIDS, "pids.max", processes},
        {TREE_CPU, tree->v2 ? "cpu.weight" : "cpu.shares", weight < most ? weight : most}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%u", files[i].value);
        int r = tree->use & files[i].use && files[i].value
                    ? fs_write_once(fd, files[i].file, text)
                    : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int nest_tree(
    struct cgroup_tree *tree, const char *name, uint32_t processes, uint32_t *ret_step)
{
    cleanup_close int fd = -1;
    unsigned use;
    *ret_step = STEP_CGROUP;
    /* from here on cgroup_host_unnest() removes it */
    memcpy(tree->name, name, sizeof(tree->name));
    int r = cgroup_make_locked(tree, name, &fd);
    if (r == 0 && tree->v2)
        r = enable_controllers(fd, &use);
    if (r < 0)
        return r;
    *ret_step = STEP_CGROUP_LIMIT;
    if ((r = limit_group(tree, fd, processes)) == 0)
        tree->fd = take_fd(&fd);
    return r;
}

int setup_nest_groups(struct cgroup_host *host, uint32_t processes, uint32_t *ret_step)
{
    char name[CGROUP_NAME];
    int r = host->count ? -EAGAIN : 0;
    host->processes = processes;
    for (int attempt = 0; r == -EAGAIN && attempt < 4; attempt++) {
        r = 0;
        cgroup_random_name(name);
        for (unsigned i = 0; r == 0 && i < host->count; i++)
            r = nest_tree(&host->trees[i], name, processes, ret_step);
        if (r < 0)
            (void)cgroup_host_unnest(host);
    }
    return r;
}
