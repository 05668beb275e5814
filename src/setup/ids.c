/* SPDX-License-Identifier: Apache-2.0 */

/* Maps the subordinate ids of a user into the user namespace of the spawner, with the tools of
 * the system, which are setuid root. Names and ranges come from the texts in /etc. */

#include "setup/setup.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool setup_read_numbers(char *line, const char *seps, uint64_t *ret, size_t count)
{
    char *save = NULL;
    char *word = strtok_r(line, seps, &save);
    for (size_t i = 0; i < count; i++, word = strtok_r(NULL, seps, &save)) {
        if (!word || str_parse_u64(word, &ret[i]) < 0)
            return false;
    }
    return true;
}

/* Runs newuidmap or newgidmap on `target`: 0 is our own id, 1 and up is the subordinate
 * range. */
static int run_map_tool(
    const char *tool, pid_t target, uid_t self, uint64_t first, uint64_t count)
{
    char args[7][24];
    (void)snprintf(args[0], sizeof(args[0]), "%d", target);
    (void)snprintf(args[1], sizeof(args[1]), "0");
    (void)snprintf(args[2], sizeof(args[2]), "%u", self);
    (void)snprintf(args[3], sizeof(args[3]), "1");
    (void)snprintf(args[4], sizeof(args[4]), "1");
    (void)snprintf(args[5], sizeof(args[5]), "%llu", (unsigned long long)first);
    (void)snprintf(args[6], sizeof(args[6]), "%llu", (unsigned long long)count);
    char path[32];
    (void)snprintf(path, sizeof(path), "/usr/bin/%s", tool);
    char *argv[] = {path, args[0], args[1], args[2], args[3], args[4], args[5], args[6], NULL};
    char *env[] = {NULL};
    pid_t pid;
    int r = posix_spawn(&pid, path, NULL, NULL, argv, env);
    if (r)
        return -r;
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

/* The name of a user, from the text of /etc/passwd; "" when there is none. */
static void user_name(uid_t uid, char *out, size_t size)
{
    static char users[65536];
    out[0] = '\0';
    if (fs_read_small(AT_FDCWD, "/etc/passwd", users, sizeof(users)) < 0)
        return;
    char *save = NULL;
    for (char *line = strtok_r(users, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *password = strchr(line, ':');
        char *number = password ? strchr(password + 1, ':') : NULL;
        uint64_t id;
        if (number && setup_read_numbers(number, ":", &id, 1) && id == uid) {
            (void)snprintf(out, size, "%.*s", (int)(password - line), line);
            return;
        }
    }
}

/* The first range of a user in /etc/subuid or /etc/subgid, found by number or by name. */
static int subordinate_range(
    const char *file, uid_t uid, uint64_t *ret_first, uint64_t *ret_count)
{
    static char text[65536];
    char number[16];
    char name[64];
    (void)snprintf(number, sizeof(number), "%u", uid);
    user_name(uid, name, sizeof(name));
    if (fs_read_small(AT_FDCWD, file, text, sizeof(text)) < 0)
        return -ENOENT;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *colon = strchr(line, ':');
        uint64_t range[2];
        if (!colon)
            continue;
        *colon = '\0';
        if ((str_eq(line, number) || (name[0] && str_eq(line, name))) &&
            setup_read_numbers(colon + 1, ":", range, 2)) {
            *ret_first = range[0];
            *ret_count = range[1];
            return 0;
        }
    }
    return -ENOENT;
}

static int open_user_lock(uid_t uid)
{
    char dir[64];
    (void)snprintf(dir, sizeof(dir), "/run/user/%u", uid);
    bool run = access(dir, W_OK) == 0;
    (void)snprintf(dir, sizeof(dir), run ? "/run/user/%u/hermes" : "/tmp/hermes-%u", uid);
    return setup_open_lock(dir);
}

int setup_map_ids(const struct setup_order *order, int *ret_lock)
{
    uint64_t ufirst;
    uint64_t ucount;
    uint64_t gfirst;
    uint64_t gcount;
    cleanup_close int lock = open_user_lock(order->uid);
    int r = lock < 0 ? lock : subordinate_range("/etc/subuid", order->uid, &ufirst, &ucount);
    if (r < 0 || (r = subordinate_range("/etc/subgid", order->uid, &gfirst, &gcount)) < 0)
        return r;
    uint64_t count = ucount < gcount ? ucount : gcount;
    if ((r = run_map_tool("newuidmap", order->pid, order->uid, ufirst, count)) < 0 ||
        (r = run_map_tool("newgidmap", order->pid, order->gid, gfirst, count)) < 0)
        return r;
    *ret_lock = take_fd(&lock);
    return 0;
}
