/* SPDX-License-Identifier: Apache-2.0 */

/* A user who is not root needs a delegated control group for limits. With cgroup v2 and a
 * systemd user session, systemd-run can make one, so Hermes executes itself again in a
 * transient scope. */

#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { MAX_TEXT = 4096 };

#define MOUNT "/sys/fs/cgroup"

static bool is_pure_v2(void)
{
    struct statfs fs;
    return statfs(MOUNT, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* Whether our own group or the group above it is writable, that is, delegated to us. */
static bool has_group(void)
{
    char text[MAX_TEXT];
    if (fs_read_small(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) < 0 ||
        !str_has_prefix(text, "0::/"))
        return false;
    cleanup_free char *own = xasprintf(MOUNT "%s/cgroup.procs", text + 3);
    cleanup_free char *above = xasprintf(MOUNT "%s/../cgroup.procs", text + 3);
    return access(own, W_OK) == 0 || access(above, W_OK) == 0;
}

void cli_delegate(int argc, char **argv)
{
    const char *runtime_dir = getenv("XDG_RUNTIME_DIR");
    if (geteuid() == 0 || !runtime_dir)
        return;
    cleanup_free char *manager = xasprintf("%s/systemd/private", runtime_dir);
    if (access(manager, F_OK) < 0 || !is_pure_v2() || has_group())
        return;
    static const char *const front[] = {
        "systemd-run", "--user", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--"};
    const size_t count = sizeof(front) / sizeof(front[0]);
    const char **all = xcalloc(count + (size_t)argc + 3, sizeof(*all));
    memcpy(all, front, sizeof(front));
    all[count] = "/proc/self/exe";
    char self[MAX_TEXT];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n > 0) {
        self[n] = '\0';
        all[count] = self;
    }
    all[count + 1] = CLI_IN_SCOPE;
    for (int i = 0; i < argc; i++)
        all[count + 2 + (size_t)i] = argv[i];
    (void)execvp(all[0], (char **)all);
    free(all); /* without systemd-run, the refusal that follows says what to do */
}
