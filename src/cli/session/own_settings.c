/* SPDX-License-Identifier: Apache-2.0 */

/* See own_settings.h. The server gets a file, and an environment that has no other settings:
 * settings for another server, or in a .env of the caller's directory, do not reach this one.
 */

#include "cli/session/own_settings.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "state/terminal_config.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, SETTINGS_MAX = 1 << 20 };

/* One command needs no ready box and no history. Its session ends with it. */
static const char settings_format[] = "unix = %s/socket\n"
                                      "state_dir = %s/state\n"
                                      "seed_dir = %s/seeds\n"
                                      "runtimes = %s/runtimes\n"
                                      "warm = false\n"
                                      "parked = 0\n"
                                      "session_parked = 0\n"
                                      "seeds = false\n"
                                      "history = memory\n"
                                      "cache_mb = 0\n"
                                      "network_max = none\n"
                                      "grace_s = 0\n"
                                      "session_idle_s = 31536000\n"
                                      "session_lifetime_s = 31536000\n"
                                      "log_level = warn\n";

static const char *variable(const char *name)
{
    return getenv(name);
}

/* Whether `below` is `above`, or lies below it. */
static bool lies_below(const char *above, const char *below)
{
    size_t len = strlen(above);
    while (len && above[len - 1] == '/')
        len--;
    return strncmp(above, below, len) == 0 && (!below[len] || below[len] == '/');
}

/* A container that can write to a home directory can change what its user runs next. */
static const char *mount_problem(const char *cwd, const char *home)
{
    static const char why[] = "it is a home directory, or has one below it";
    if (str_eq(cwd, "/"))
        return "it is the whole machine";
    bool is_home = home && home[0] == '/' && lies_below(cwd, home);
    const struct passwd *one;
    setpwent();
    while (!is_home && (one = getpwent()))
        is_home = one->pw_dir && one->pw_dir[0] == '/' && one->pw_dir[1] &&
                  lies_below(cwd, one->pw_dir);
    endpwent();
    return is_home ? why : NULL;
}

static int refuse(const struct strv *problems, struct err *err)
{
    char more[48] = "";
    if (problems->count > 1)
        (void)snprintf(more, sizeof(more), " (and %zu more)", problems->count - 1);
    return err_set(err, ERR_INVALID, EINVAL, "~/.hermes/config.yaml or TERMINAL_*: %s%s",
        problems->items[0], more);
}

/* The file of the caller; ret is empty when there is none. */
static int read_file(const char *home, struct buf *ret, struct err *err)
{
    buf_init(ret, TERMINAL_CONFIG_MAX + 1);
    if (!home || home[0] != '/')
        return 0;
    cleanup_free char *path = xasprintf("%s/.hermes/config.yaml", home);
    int r = fs_read_trusted(path, ret, err);
    if (r != -ENOENT && r != -ENOTDIR)
        return r;
    *err = (struct err){0};
    return 0;
}

static void add_variable(struct own_settings *s, const char *name)
{
    const char *value = getenv(name);
    if (value)
        strv_add_owned(&s->env, xasprintf("%s=%s", name, value));
}

static void make_environment(
    struct own_settings *s, const char *dir, const struct terminal_own *own)
{
    static const char *const names[] = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL",
        "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "HERMES_MIN_LEVEL", "HERMES_USER",
        "HERMES_BACKENDS_USER", "ASAN_OPTIONS", "UBSAN_OPTIONS"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        add_variable(s, names[i]);
    cleanup_free char *list = xstrdup(own->forward_env);
    for (char *at = list, *name; (name = strsep(&at, ", "));)
        if (name[0])
            add_variable(s, name);
    strv_add_owned(&s->env, xasprintf("NOTIFY_SOCKET=%s/notify", dir));
}

/* Root's commands would run as root; the server refuses that. */
static int check_user(const struct own_settings *s, struct err *err)
{
    const char *user = getenv("HERMES_BACKENDS_USER");
    bool has_user = user && user[0];
    if (geteuid() != 0 || has_user || str_eq(s->backend, "native") ||
        str_eq(s->backend, "docker"))
        return 0;
    return err_set(err, ERR_INVALID, EPERM,
        "backend %s: commands do not run as root; name a user with a home directory in "
        "HERMES_BACKENDS_USER, or call this as that user",
        s->backend);
}

/* Other places have the shell of bash sessions and no other interpreter. */
static int check_language(
    const struct own_settings *s, const struct own_wish *wish, struct err *err)
{
    if (!wish->language || str_eq(s->backend, "native") || str_eq(wish->language, "bash"))
        return 0;
    return err_set(err, ERR_INVALID, EINVAL,
        "backend %s: only bash sessions run there; say -l bash, or --backend native for %s in "
        "a box",
        s->backend, wish->language);
}

int own_settings_make(
    const char *dir, const struct own_wish *wish, struct own_settings *ret, struct err *err)
{
    char cwd[PATH_ROOM];
    const char *home = getenv("HOME");
    struct terminal_caller caller = {.variable = variable,
        .environment = environ,
        .home = home && home[0] == '/' ? home : NULL,
        .cwd = getcwd(cwd, sizeof(cwd)),
        .backend = wish->backend,
        .lists_all = wish->lists_all};
    CLEANUP(terminal_own_done) struct terminal_own own = {0};
    CLEANUP(strv_done) struct strv problems = {0};
    cleanup_buf struct buf file;
    *ret = (struct own_settings){0};
    buf_init(&ret->text, SETTINGS_MAX);
    caller.no_mount = caller.cwd ? mount_problem(caller.cwd, caller.home) : NULL;
    int r = read_file(caller.home, &file, err);
    if (r < 0)
        return r;
    terminal_config_read_own(
        file.len ? file.data : NULL, file.len, &caller, &own, &problems, &ret->notes);
    (void)snprintf(ret->backend, sizeof(ret->backend), "%s", own.backend);
    if (problems.count)
        return refuse(&problems, err);
    if (!wish->lists_all &&
        ((r = check_language(ret, wish, err)) < 0 || (r = check_user(ret, err)) < 0))
        return r;
    if (own.wants_fresh && str_eq(ret->backend, "native") && str_eq(wish->language, "bash"))
        ret->warning = "persistent_shell is for backends: a box keeps its shell";
    make_environment(ret, dir, &own);
    /* sections come last in such a file */
    if (buf_printf(&ret->text, settings_format, dir, dir, dir, dir) < 0 ||
        (own.sections.len && buf_append(&ret->text, own.sections.data, own.sections.len) < 0))
        return err_set(err, ERR_TOO_LARGE, E2BIG,
            "the settings for the server of this command are too long");
    return 0;
}

void own_settings_done(struct own_settings *s)
{
    buf_done(&s->text);
    strv_done(&s->env);
    strv_done(&s->notes);
}
