/* SPDX-License-Identifier: Apache-2.0 */

/* Finds out what this host can enforce, by trying it. One row per attempt. Each attempt runs in
 * a child that is thrown away. A feature is enforced when none of its rows fails. Kernel
 * versions are never looked at. */

#include "setup/setup.h"

#include "base/cleanup.h"
#include "base/os/sys.h"
#include "box/landlock.h"
#include "box/mount_fs.h"
#include "box/seccomp.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* One attempt. Where `flags` has CLONE_NEWUSER it runs with every capability in a fresh user
 * namespace. */
struct attempt {
    enum spawn_feature feature;
    uint64_t flags; /* of clone3 */
    int (*run)(void);
};

static int nothing(void)
{
    return 0;
}

/* Mounts a tmpfs at /tmp. */
static int mount_tmp(int *ret_fs)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    *ret_fs = mount_fs_tmpfs(65536, 16, "0755", -1, ATTR_NOSUID);
    return *ret_fs < 0 ? *ret_fs : sys_mount_attach(*ret_fs, AT_FDCWD, "/tmp");
}

static int try_mount_api(void)
{
    cleanup_close int fs = -1;
    int r = mount_tmp(&fs);
    if (r < 0)
        return r;
    cleanup_close int tree = sys_tree_clone(AT_FDCWD, "/tmp");
    return tree < 0 ? tree : sys_mount_attrs(tree, ATTR_RDONLY, 0, true);
}

static int try_proc(void)
{
    cleanup_close int fs = sys_fs_open("proc");
    int r = fs < 0 ? fs : sys_fs_set(fs, "hidepid", "invisible");
    if (r < 0 || (r = sys_fs_set(fs, "subset", "pid")) < 0 || (r = sys_fs_create(fs)) < 0)
        return r;
    cleanup_close int mnt = sys_fs_mount(fs, ATTR_NOSUID);
    return mnt < 0 ? mnt : 0;
}

static int try_pivot(void)
{
    cleanup_close int fs = -1;
    int r = mount_tmp(&fs);
    if (r < 0)
        return r;
    return fchdir(fs) < 0 ? -errno : sys_pivot_root(".", ".");
}

/* The spawner moves between the root trees of its languages. Root in a container needs
 * CAP_SYS_CHROOT besides CAP_SYS_ADMIN for that. */
static int try_enter(void)
{
    cleanup_close int ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    return ns < 0 || setns(ns, CLONE_NEWNS) < 0 ? -errno : 0;
}

/* Box init does this; containers often refuse it. */
static int try_keyring(void)
{
    long r = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    return r < 0 && errno != ENOSYS ? -errno : 0;
}

static int try_no_new_privs(void)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int try_seccomp(void)
{
    int r = try_no_new_privs();
    return r < 0 ? r : seccomp_load(false);
}

static int try_landlock(void)
{
    int abi = landlock_abi();
    if (abi < 3)
        return -ENOSYS;
    struct {
        uint64_t fs;
    } attr = {1};
    int r = try_no_new_privs();
    cleanup_close int ruleset = sys_landlock_create(&attr, sizeof(attr), 0);
    if (r < 0 || ruleset < 0)
        return r < 0 ? r : ruleset;
    return sys_landlock_restrict(ruleset);
}

static int try_openat2(void)
{
    cleanup_close int fd = sys_openat2(AT_FDCWD, ".", O_PATH, 0, RESOLVE_BENEATH);
    return fd < 0 ? fd : 0;
}

static int try_close_range(void)
{
    return sys_close_range(1000, ~0u, 0);
}

static int try_pidfd(void)
{
    cleanup_close int fd = sys_pidfd_open(getpid());
    return fd < 0 ? fd : sys_pidfd_send_signal(fd, 0);
}

#define MOUNT_NS (CLONE_NEWUSER | CLONE_NEWNS)
static const struct attempt attempts[] = {
    {FEATURE_USERNS, CLONE_NEWUSER, nothing},
    {FEATURE_NAMESPACES, MOUNT_NS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS,
        nothing},
    {FEATURE_NAMESPACES, 0, try_enter},
    {FEATURE_NAMESPACES, 0, try_keyring},
    {FEATURE_MOUNT_API, MOUNT_NS, try_mount_api},
    {FEATURE_PROC, MOUNT_NS | CLONE_NEWPID, try_proc},
    {FEATURE_PIVOT, MOUNT_NS, try_pivot},
    {FEATURE_NNP, 0, try_no_new_privs},
    {FEATURE_SECCOMP, 0, try_seccomp},
    {FEATURE_LANDLOCK, 0, try_landlock},
    {FEATURE_OPENAT2, 0, try_openat2},
    {FEATURE_CLOSE_RANGE, 0, try_close_range},
    {FEATURE_PIDFD, 0, try_pidfd},
};

/* Runs one attempt in a child and returns its result; the errno comes back as exit status. */
static int attempt(const struct attempt *a)
{
    struct sys_clone_args args = {.flags = a->flags, .exit_signal = SIGCHLD};
    int pid = a->flags ? sys_clone3(&args) : sys_fork();
    if (pid == 0)
        _exit(-a->run() & 0xff);
    if (pid < 0)
        return pid;
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

void setup_probe(struct setup_answer *ret)
{
    for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
        int r = attempt(&attempts[i]);
        if (r < 0)
            ret->reason[attempts[i].feature] = r;
    }
}
