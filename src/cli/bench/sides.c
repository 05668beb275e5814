/* SPDX-License-Identifier: Apache-2.0 */

/* See sides.h. */

#include "cli/bench/sides.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "lang/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* PARKED and NETWORKS are kept ready. PATIENCE_MS bounds the wait for a warm box of one
 * language, FILL_MS is then given to fill the pools. */
enum { OUTPUT_MAX = 4096, PARKED = 16, NETWORKS = 4, PATIENCE_MS = 30000, FILL_MS = 1000 };

static const struct subject subjects[BENCH_SUBJECTS] = {
    {"python", "print('hello')\n", {"/usr/bin/python3", "-c", "print('hello')"}},
    {"javascript", "console.log('hello')\n", {"/usr/bin/node", "-e", "console.log('hello')"}},
    {"bash", "echo hello\n", {"/bin/bash", "-c", "echo hello"}},
    {"perl", "print \"hello\\n\";\n", {"/usr/bin/perl", "-e", "print \"hello\\n\""}},
    {"ruby", "puts 'hello'\n", {"/usr/bin/ruby", "-e", "puts 'hello'"}},
    {"php", "<?php echo \"hello\\n\";\n", {"/usr/bin/php", "-r", "echo \"hello\\n\";"}},
};

/* Command lines before the interpreter. They set up the same namespaces and file systems as a
 * box. */
static const struct {
    const char *name;
    const char *before[32];
} sides[SIDE_COUNT] = {
    [SIDE_BARE] = {"bare", {0}},
    [SIDE_WARM] = {"warm", {0}},
    [SIDE_COLD] = {"cold", {0}},
    [SIDE_BWRAP] = {"bwrap",
        {"/usr/bin/bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr",
            "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink",
            "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
            "--ro-bind", "/etc/alternatives", "/etc/alternatives"}},
    [SIDE_NSJAIL] = {"nsjail",
        {"/usr/bin/nsjail", "-Mo", "-Q", "-R", "/usr", "-s", "usr/lib:/lib", "-s",
            "usr/lib64:/lib64", "-s", "usr/bin:/bin", "-T", "/tmp", "--user", "99999",
            "--group", "99999", "-R", "/etc/alternatives", "--"}},
};

const char *bench_side_name(unsigned side)
{
    return sides[side].name;
}

static size_t index_of(const struct bench *b, const struct subject *subject)
{
    size_t i = 0;
    while (i < b->count && b->subjects[i] != subject)
        i++;
    return i;
}

bool bench_has_side(const struct bench *b, const struct subject *subject, unsigned side)
{
    if (side == SIDE_WARM)
        return b->is_warm[index_of(b, subject)];
    return side <= SIDE_COLD || access(sides[side].before[0], X_OK) == 0;
}

/* Runs a command and reads its output. 0 when it succeeded. */
static int run_command(const char *const *argv, char out[OUTPUT_MAX], size_t *ret_len)
{
    int pair[2];
    posix_spawn_file_actions_t actions;
    char *const env[] = {(char *)"PATH=/usr/bin:/bin", NULL};
    pid_t pid;
    int status = 0;
    ssize_t n;
    if (!argv[0] || pipe2(pair, O_CLOEXEC) < 0)
        return argv[0] ? -errno : -EINVAL;
    cleanup_close int from = pair[0];
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, pair[1], 1);
    int r = posix_spawn(&pid, argv[0], &actions, NULL, (char *const *)argv, env);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(pair[1]);
    if (r)
        return -r;
    *ret_len = 0;
    while (*ret_len < OUTPUT_MAX && (n = read(from, out + *ret_len, OUTPUT_MAX - *ret_len)) > 0)
        *ret_len += (size_t)n;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

static int run_outside(const struct subject *subject, unsigned side, struct err *err)
{
    const char *argv[40] = {0};
    char out[OUTPUT_MAX];
    size_t len = 0;
    size_t count = 0;
    for (; sides[side].before[count]; count++)
        argv[count] = sides[side].before[count];
    for (size_t i = 0; subject->bare[i]; i++)
        argv[count++] = subject->bare[i];
    int r = run_command(argv, out, &len);
    if (r == 0 && (len != 6 || memcmp(out, "hello\n", 6) != 0))
        r = -EPROTO;
    return r < 0 ? err_set(err, ERR_UNAVAILABLE, -r, "%s did not say hello: %s", argv[0],
                       strerror(-r))
                 : 0;
}

static int run_box(const struct bench *b, const struct subject *subject, bool cold,
    bool *ret_warm, struct err *err)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_result_done) struct run_result result;
    run_spec_init(&spec);
    run_result_init(&result, OUTPUT_MAX);
    spec.runtime = runtime_find(&b->runtimes, subject->language);
    run_files_add(&spec.files, spec.runtime->main_file, xstrdup(subject->code),
        strlen(subject->code), false);
    if (cold)
        strv_add(&spec.env, "LC_HERMES=cold");
    CLEANUP(run_plan_done) struct run_plan plan = {0};
    int r = run_plan_make(&spec, engine_maxima(b->engine), &plan, err);
    if (r == 0)
        r = engine_run(b->engine, &plan, NULL, &result, err);
    if (r < 0)
        return r;
    *ret_warm = result.run.is_warm;
    if (result.run.status != RUN_OK || result.run.out.len != 6)
        return err_set(err, ERR_INTERNAL, EPROTO, "%s in a box: %s", subject->language,
            run_status_name(result.run.status));
    return 0;
}

int bench_run(const struct bench *b, const struct subject *subject, unsigned side,
    double *ret_ms, struct err *err)
{
    uint64_t begin_ns = clock_ns();
    bool is_warm;
    int r = side == SIDE_WARM || side == SIDE_COLD
                ? run_box(b, subject, side == SIDE_COLD, &is_warm, err)
                : run_outside(subject, side, err);
    *ret_ms = (double)(clock_ns() - begin_ns) / 1e6;
    return r;
}

/* Loads a language. *ret_usable says whether it is installed. */
static int add_language(
    struct bench *b, const struct subject *subject, bool *ret_usable, struct err *err)
{
    struct runtime_registry one = {0};
    int r = runtime_load(&one, &b->dirs, subject->language, err);
    if (r < 0)
        return r;
    *ret_usable = one.items[0].available && access(subject->bare[0], X_OK) == 0;
    if (!*ret_usable) {
        runtime_registry_done(&one);
        return 0;
    }
    b->runtimes.items =
        xreallocarray(b->runtimes.items, b->runtimes.count + 1, sizeof(*b->runtimes.items));
    b->runtimes.items[b->runtimes.count++] = one.items[0];
    free(one.items);
    b->subjects[b->count++] = subject;
    return 0;
}

static int choose(struct bench *b, const struct strv *languages, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < languages->count; i++) {
        size_t k = 0;
        while (k < BENCH_SUBJECTS && !str_eq(subjects[k].language, languages->items[i]))
            k++;
        if (k == BENCH_SUBJECTS)
            return err_set(err, ERR_INVALID, EINVAL,
                "\"%s\" cannot be measured; use python, javascript, bash, perl, ruby or php",
                languages->items[i]);
    }
    for (size_t i = 0; r == 0 && i < BENCH_SUBJECTS; i++) {
        bool is_usable = false;
        bool is_named = strv_has(languages, subjects[i].language);
        if (languages->count && !is_named)
            continue;
        r = add_language(b, &subjects[i], &is_usable, err);
        if (r == 0 && is_named && !is_usable)
            r = err_set(err, ERR_UNAVAILABLE, ENOENT,
                "%s is not installed; `hermes runtimes` names the package",
                subjects[i].language);
    }
    if (r == 0 && !b->count)
        r = err_set(err, ERR_UNAVAILABLE, ENOENT,
            "no language to measure is installed; `hermes runtimes` names the packages");
    return r;
}

static bool can_be_warm(const struct runtime *rt)
{
    return rt->run.warm.count || rt->run.park.max;
}

/* Waits until runs get warm boxes. Without root there are none. */
static int wait_warm(struct bench *b, struct err *err)
{
    bool any = false;
    for (size_t i = 0; i < b->count && geteuid() == 0; i++) {
        uint64_t deadline_ms = clock_ms() + PATIENCE_MS;
        bool is_warm = !can_be_warm(runtime_find(&b->runtimes, b->subjects[i]->language));
        while (!is_warm && clock_ms() < deadline_ms) {
            int r = run_box(b, b->subjects[i], false, &is_warm, err);
            if (r < 0)
                return r;
            b->is_warm[i] = is_warm;
            any = any || is_warm;
        }
    }
    if (any) /* gives the pools time to fill */
        (void)nanosleep(&(struct timespec){.tv_nsec = FILL_MS * 999999L}, NULL);
    return 0;
}

int bench_open(struct bench *b, const struct strv *languages, struct err *err)
{
    int r = choose(b, languages, err);
    if (r < 0)
        return r;
    struct engine_options options = {.runtimes = &b->runtimes,
        .dirs = b->dirs,
        .spawner_path = b->spawner_path,
        .min_level = LEVEL_STRONG,
        .networks = NETWORKS,
        .zygotes = true,
        .park = PARKED};
    limits_maxima(&options.maxima);
    r = engine_open(&b->engine, &options, err);
    return r < 0 ? r : wait_warm(b, err);
}

void bench_close(struct bench *b)
{
    if (b->engine)
        engine_close(b->engine);
    runtime_registry_done(&b->runtimes);
}
