/* SPDX-License-Identifier: Apache-2.0 */

/* hermes run: runs one program in a box, streamed, without a server. The exit status is the
 * program's own, or says what stopped it. */

#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "run/encode.h"
#include "run/engine.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* In bytes. Files from MAP_FROM on are mapped instead of read. */
enum { MAX_FILE = 512 << 20, MAP_FROM = 128 << 10 };
#define DEFAULT_OUT "hermes-out"

enum {
    OPT_TIME = 256,
    OPT_CPU,
    OPT_MEMORY,
    OPT_PROCESSES,
    OPT_OPEN_FILES,
    OPT_DISK,
    OPT_FILE_SIZE,
    OPT_STACK,
    OPT_OUTPUT,
    OPT_CPUS,
    OPT_RO,
    OPT_RW,
    OPT_JSON,
    OPT_COLLECT,
    OPT_OUT,
    OPT_COMPILE_ARG,
    OPT_MIN_LEVEL,
    OPT_ENTRY,
    OPT_NO_CACHE,
    OPT_BASE64,
};

static const struct option_row options[] = {
    {"language", 'l', "LANG", "language or alias (`hermes runtimes`); default by the name"},
    {"file", 'f', "FILE", "put another file beside the program (name it A:B to rename)"},
    {"entry", OPT_ENTRY, "NAME", "which of the files is run"},
    {"env", 'e', "KEY=VALUE", "set a variable in the box"},
    {"compile-arg", OPT_COMPILE_ARG, "ARG", "pass an allowed option to the compiler"},
    {CLI_NO_CACHE(OPT_NO_CACHE)},
    {"ro", OPT_RO, "DIR[:PATH]", "show a directory read-only (default below /mnt)"},
    {"rw", OPT_RW, "DIR[:PATH]", "show a directory for writing"},
    {"time", OPT_TIME, "DURATION", "wall time limit: 2s, 500ms"},
    {"cpu", OPT_CPU, "DURATION", "CPU time limit, of all processes together"},
    {"memory", OPT_MEMORY, "SIZE", "memory limit: 256m"},
    {"processes", OPT_PROCESSES, "N", "processes and threads at one time"},
    {"open-files", OPT_OPEN_FILES, "N", "descriptors of one process"},
    {"disk", OPT_DISK, "SIZE", "size of /box, of /tmp and of /dev/shm"},
    {"file-size", OPT_FILE_SIZE, "SIZE", "largest file the program may write"},
    {"stack", OPT_STACK, "SIZE", "stack limit"},
    {"output", OPT_OUTPUT, "SIZE", "most bytes on stdout and on stderr"},
    {"cpus", OPT_CPUS, "N", "cores the box may use: 0.5, 2"},
    {CLI_MIN_LEVEL(OPT_MIN_LEVEL)},
    {"json", OPT_JSON, NULL, "print the whole answer as JSON"},
    {"base64", OPT_BASE64, NULL, "with --json: stdout and stderr in base64"},
    {"collect", OPT_COLLECT, "GLOB", "bring back files from /box that match"},
    {"out", OPT_OUT, "DIR", "where collected files are written (default hermes-out)"},
    {0},
};

static const struct option_table table = {
    .command = "hermes run",
    .operands = "FILE|- [ARG...]",
    .rows = options,
    .in_order = true,
    .before =
        "Runs FILE (or code from stdin: -) in a box of its own and exits with its status.",
    .after = "Exit status: the program's own; 128+N when signal N killed it; 124 time limit; "
             "137 memory "
             "limit; 153 output limit; the compiler's when it failed; 2 wrong usage; 125 when "
             "Hermes "
             "itself "
             "failed; 130 after Ctrl-C.\n\n"
             "Examples:\n"
             "  hermes run hello.py\n"
             "  hermes run --time 2s --memory 128m solution.c < input.txt\n"
             "  echo 'echo $((6*7))' | hermes run -l bash -\n"
             "  hermes run --json --collect '*.png' plot.py",
};

struct run_args {
    const char *file;
    const char *language;
    const char *out_dir;
    struct run_spec spec;
    struct strv files; /* values of -f */
    struct engine_options engine;
    struct runtime_registry registry;
    bool json;
    bool base64;
    bool no_cache;
};

/* Limits with one option each: how the text is parsed and the unit of the value. */
static const struct limit_flag {
    int option;
    const char *name;
    size_t offset;
    enum { READ_MS, READ_MB, READ_KB, READ_COUNT, READ_CPUS } read;
} limit_flags[] = {
    {OPT_TIME, "time", offsetof(struct run_limits, wall_ms), READ_MS},
    {OPT_CPU, "cpu", offsetof(struct run_limits, cpu_ms), READ_MS},
    {OPT_MEMORY, "memory", offsetof(struct run_limits, memory_mb), READ_MB},
    {OPT_DISK, "disk", offsetof(struct run_limits, disk_mb), READ_MB},
    {OPT_FILE_SIZE, "file-size", offsetof(struct run_limits, file_size_mb), READ_MB},
    {OPT_STACK, "stack", offsetof(struct run_limits, stack_mb), READ_MB},
    {OPT_OUTPUT, "output", offsetof(struct run_limits, output_kb), READ_KB},
    {OPT_PROCESSES, "processes", offsetof(struct run_limits, processes), READ_COUNT},
    {OPT_OPEN_FILES, "open-files", offsetof(struct run_limits, open_files), READ_COUNT},
    {OPT_CPUS, "cpus", offsetof(struct run_limits, cpu_milli), READ_CPUS},
};

static int read_limit(const struct limit_flag *flag, const char *text, uint64_t *ret)
{
    uint64_t value;
    int r;
    switch (flag->read) {
    case READ_MS:
    case READ_CPUS: /* "0.5" parsed as seconds is 500 thousandths */
        r = str_parse_duration_ms(text, &value);
        if (flag->read == READ_CPUS && text[strcspn(text, "hms")])
            r = -EINVAL;
        break;
    case READ_COUNT:
        r = str_parse_u64(text, &value);
        break;
    default:
        r = str_parse_size(text, &value);
        uint64_t unit = flag->read == READ_MB ? 1 << 20 : 1 << 10;
        value = r == 0 ? (value + unit - 1) / unit : 0;
        break;
    }
    if (r == 0 && value == 0)
        r = -ERANGE;
    if (r == 0)
        *ret = value;
    return r;
}

static bool take_limit(struct run_args *args, int key, const char *text)
{
    for (size_t i = 0; i < sizeof(limit_flags) / sizeof(limit_flags[0]); i++) {
        const struct limit_flag *flag = &limit_flags[i];
        if (flag->option != key)
            continue;
        uint64_t *to = (uint64_t *)((char *)&args->spec.limits + flag->offset);
        if (read_limit(flag, text, to) < 0)
            options_wrong(table.command, flag->name, text,
                flag->read == READ_MS ? "not a duration above zero such as 2s or 500ms"
                : flag->read == READ_CPUS || flag->read == READ_COUNT
                    ? "not a number above zero"
                    : "not a size above zero such as 256m");
        return true;
    }
    return false;
}

static void take_env(struct run_args *args, const char *text)
{
    const char *equals = strchr(text, '=');
    cleanup_free char *key = xstrndup(text, equals ? (size_t)(equals - text) : 0);
    const char *problem =
        equals ? run_env_problem(key, equals + 1, strlen(equals + 1)) : "not KEY=VALUE";
    if (problem)
        options_wrong(table.command, "env", text, problem);
    strv_add(&args->spec.env, text);
}

/* Takes DIR or DIR:PATH. Without PATH the box sees it at /mnt/NAME. */
static void take_mount(struct run_args *args, const char *text, bool writable)
{
    const char *option = writable ? "rw" : "ro";
    const char *colon = strrchr(text, ':');
    cleanup_free char *dir = xstrndup(text, colon ? (size_t)(colon - text) : strlen(text));
    char real[PATH_MAX];
    struct stat st;
    if (!realpath(dir, real) || stat(real, &st) < 0 || !S_ISDIR(st.st_mode))
        options_wrong(table.command, option, dir, "not a directory");
    size_t n = args->spec.mount_count;
    if (n == sizeof(args->spec.mounts) / sizeof(args->spec.mounts[0]))
        options_wrong(table.command, option, dir, "at most 8 directories");
    struct run_mount *mount = &args->spec.mounts[n];
    const char *base = strrchr(real, '/') + 1;
    int len = colon ? snprintf(mount->path, sizeof(mount->path), "%s", colon + 1)
                    : snprintf(mount->path, sizeof(mount->path), "/mnt/%s", base);
    bool below = str_has_prefix(mount->path, "/mnt/") || str_has_prefix(mount->path, "/box/");
    if (len < 0 || (size_t)len >= sizeof(mount->path) || !below ||
        str_name_problem(mount->path + 1, strlen(mount->path + 1)))
        options_wrong(
            table.command, option, text, "the path in the box must lie below /mnt or /box");
    mount->source = (unsigned)n;
    mount->writable = writable;
    args->engine.sources[n].path = xstrdup(real);
    args->engine.sources[n].writable = writable;
    args->spec.mount_count = args->engine.source_count = n + 1;
}

static void take_option(void *to, int key, char *arg)
{
    struct run_args *args = to;
    if (key > OPT_TIME - 1 && take_limit(args, key, arg))
        return;
    switch (key) {
    case 'l':
        args->language = arg;
        break;
    case 'f':
        strv_add(&args->files, arg);
        break;
    case 'e':
        take_env(args, arg);
        break;
    case OPT_ENTRY:
        args->spec.entry = xstrdup(arg);
        break;
    case OPT_COMPILE_ARG:
        strv_add(&args->spec.compile_args, arg);
        break;
    case OPT_RO:
    case OPT_RW:
        take_mount(args, arg, key == OPT_RW);
        break;
    case OPT_MIN_LEVEL:
        args->engine.min_level = cli_min_level(table.command, arg);
        break;
    case OPT_JSON:
        args->json = true;
        break;
    case OPT_NO_CACHE:
        args->no_cache = true;
        break;
    case OPT_BASE64:
        args->base64 = true;
        break;
    case OPT_COLLECT:
        strv_add(&args->spec.collect, arg);
        break;
    case OPT_OUT:
        args->out_dir = arg;
        break;
    case OPTION_NONE:
        if (args->file)
            strv_add(&args->spec.args, arg);
        else
            args->file = arg;
        break;
    default:
        break;
    }
}

/* Maps a large file instead of reading it. A zero page follows, so that it ends with a NUL. */
static bool map_file(int fd, size_t size, struct run_file *ret)
{
    const size_t page = 4096;
    size_t whole = (size + page) / page * page + page;
    char *at = mmap(NULL, whole, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return false;
    if (mmap(at, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) {
        (void)munmap(at, whole);
        return false;
    }
    ret->content = at;
    ret->size = size;
    ret->mapped_size = whole;
    return true;
}

/* Reads a whole file, or stdin for "-", into *ret, which has no name yet. */
static int read_source(const char *path, struct run_file *ret, struct err *err)
{
    cleanup_buf struct buf b = {0};
    cleanup_close int fd = input_open(path, err);
    struct stat st;
    *ret = (struct run_file){0};
    if (fd < 0)
        return fd;
    if (!str_eq(path, "-") && fstat(fd, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return err_set(
                err, ERR_INVALID, EISDIR, "%s is a directory; name the file to run", path);
        ret->executable = st.st_mode & 0111;
        if (S_ISREG(st.st_mode) && st.st_size >= MAP_FROM && st.st_size <= MAX_FILE &&
            map_file(fd, (size_t)st.st_size, ret))
            return 0;
    }
    int r = input_take(fd, path, MAX_FILE, &b, err);
    if (r == 0)
        ret->content = buf_take(&b, &ret->size);
    return r;
}

/* Mounts a world-readable and world-executable program into the box instead of copying it. */
static void mount_program(struct run_args *args, const char *path, mode_t mode)
{
    size_t n = args->spec.mount_count;
    struct run_files *files = &args->spec.files;
    char real[PATH_MAX];
    bool room = n < sizeof(args->spec.mounts) / sizeof(args->spec.mounts[0]);
    if (!room || (mode & 0005) != 0005 || !realpath(path, real) ||
        strlen(real) >= SPAWN_PATH_MAX)
        return;
    args->spec.mounts[n].source = (unsigned)n;
    (void)snprintf(args->spec.mounts[n].path, sizeof(args->spec.mounts[n].path), "/box/%s",
        args->spec.runtime->main_file);
    args->engine.sources[n].path = xstrdup(real);
    args->spec.mount_count = args->engine.source_count = n + 1;
    files->items[files->count - 1].mounted = true;
}

/* Adds a file and takes its content. */
static int add_file(
    struct run_args *args, const char *name, const struct run_file *file, struct err *err)
{
    const char *problem = str_name_problem(name, strlen(name));
    struct run_files *files = &args->spec.files;
    run_files_add(files, name, file->content, file->size, file->executable);
    files->items[files->count - 1].mapped_size = file->mapped_size;
    return problem ? err_set(err, ERR_INVALID, EINVAL, "file name `%s`: %s", name, problem) : 0;
}

/* Adds a file of -f: FILE or FILE:NAME. */
static int add_extra(struct run_args *args, const char *text, struct err *err)
{
    const char *colon = strrchr(text, ':');
    cleanup_free char *path = xstrndup(text, colon ? (size_t)(colon - text) : strlen(text));
    const char *slash = strrchr(path, '/');
    const char *name = colon ? colon + 1 : slash ? slash + 1 : path;
    struct run_file file;
    int r = read_source(path, &file, err);
    return r < 0 ? r : add_file(args, name, &file, err);
}

/* Guesses the language of a file without an extension: ELF, or from its #! line. */
static char *guess_language(const char *data, size_t len)
{
    if (len >= 4 && memcmp(data, "\177ELF", 4) == 0)
        return xstrdup("native");
    if (len < 3 || data[0] != '#' || data[1] != '!')
        return NULL;
    size_t line = 2;
    while (line < len && data[line] != '\n')
        line++;
    cleanup_free char *first = xstrndup(data + 2, line - 2);
    char *save = NULL;
    char *word = strtok_r(first, " \t\r", &save);
    char *last = word;
    while (word && str_has_suffix(word, "/env") && (word = strtok_r(NULL, " \t\r", &save)))
        last = word;
    if (!last)
        return NULL;
    char *slash = strrchr(last, '/');
    return xstrdup(slash ? slash + 1 : last);
}

static int load_runtime(struct run_args *args, struct runtime_registry *registry,
    const struct run_file *code, struct err *err)
{
    const char *hint = args->language;
    const char *dot = strrchr(args->file, '.');
    cleanup_free char *guess = NULL;
    if (!hint && dot && dot != args->file && !strchr(dot, '/'))
        hint = args->file;
    if (!hint) {
        guess = guess_language(code->content, code->size);
        hint = guess;
    }
    if (!hint)
        return err_set(err, ERR_INVALID, EINVAL,
            "cannot tell the language of %s; say it with -l (`hermes runtimes` lists them)",
            str_eq(args->file, "-") ? "the code on stdin" : args->file);
    int r = runtime_load(registry, hint, err);
    if (r < 0)
        return r;
    args->spec.runtime = &registry->items[0];
    return 0;
}

static int prepare(struct run_args *args, struct runtime_registry *registry, struct err *err)
{
    struct run_file code;
    int r = read_source(args->file, &code, err);
    if (r < 0)
        return r;
    r = load_runtime(args, registry, &code, err);
    const char *slash = strrchr(args->file, '/');
    const char *name = slash ? slash + 1 : args->file;
    if (r == 0 && (str_eq(name, "-") || str_eq(args->spec.runtime->name, "native")))
        name = args->spec.runtime->main_file;
    int added = add_file(args, name, &code, r < 0 ? NULL : err);
    if (r < 0 || (r = added) < 0)
        return r;
    struct stat st;
    if (str_eq(args->spec.runtime->name, "native") && code.mapped_size &&
        stat(args->file, &st) == 0)
        mount_program(args, args->file, st.st_mode);
    if (!args->spec.entry)
        args->spec.entry = xstrdup(name);
    for (size_t i = 0; i < args->files.count; i++) {
        if ((r = add_extra(args, args->files.items[i], err)) < 0)
            return r;
    }
    if (!str_eq(args->file, "-"))
        args->spec.stdin_fd = STDIN_FILENO;
    return 0;
}

/* Writes a collected file. The program chose the name, so the file stays below one directory,
 * which is not the working directory by default. Links are not followed and nothing becomes
 * executable: a program must not be able to plant a hook for its caller. */
static int save_file(int dir_fd, const struct run_file *file)
{
    const char *slash = strrchr(file->name, '/');
    cleanup_free char *parent = xstrndup(file->name, slash ? (size_t)(slash - file->name) : 0);
    int r = slash ? fs_mkdirs_beneath(dir_fd, parent, 0755) : 0;
    if (r < 0)
        return r;
    cleanup_close int fd =
        fs_open_beneath(dir_fd, file->name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    return fd < 0 ? fd : fs_write_all(fd, file->content, file->size);
}

static int save_files(
    const struct run_args *args, const struct run_files *files, struct err *err)
{
    const char *dir = args->out_dir ? args->out_dir : DEFAULT_OUT;
    int r = fs_mkdirs(AT_FDCWD, dir, 0755);
    cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r < 0 || dir_fd < 0)
        return err_set(err, ERR_INVALID, errno, "cannot write to %s: %s", dir, strerror(errno));
    for (size_t i = 0; i < files->count; i++) {
        const struct run_file *file = &files->items[i];
        const char *problem = file->error;
        if (!problem && (r = save_file(dir_fd, file)) < 0)
            problem = strerror(-r);
        if (problem) {
            /* err_set makes the name printable. */
            (void)err_set(
                err, ERR_INVALID, r < 0 ? -r : 0, "%s not collected: %s", file->name, problem);
            (void)fprintf(stderr, "hermes run: %s\n", err->message);
        }
    }
    return r;
}

/* Prints what a person at a terminal wants to know beside the program's output. */
static void tell(const struct run_result *result)
{
    const struct stage_result *run = &result->run;
    if (run->status == RUN_COMPILE_ERROR) {
        (void)fs_write_all(STDERR_FILENO, result->compile.out.data, result->compile.out.len);
        (void)fs_write_all(STDERR_FILENO, result->compile.err.data, result->compile.err.len);
    }
    if (run->status == RUN_SIGNALED)
        (void)fprintf(stderr, "hermes run: killed by %s\n", run_signal_name(run->signal));
    else if (run->message[0])
        (void)fprintf(stderr, "hermes run: %s\n", run->message);
}

static int run_prepared(
    struct run_args *args, struct engine *engine, int signal_fd, struct err *err)
{
    struct run_result result;
    run_result_init(&result, 1 << 20);
    static const int sinks[] = {STDOUT_FILENO, STDERR_FILENO};
    int output_error = 0; /* negative errno once the program's output could not be written */
    struct run_watch watch = {.sink_fds = args->json ? NULL : sinks,
        .sink_error = &output_error,
        .cancel_fd = signal_fd};
    struct run_plan plan; /* not freed, like everything else here */
    int r = run_plan_make(&args->spec, engine_maxima(engine), &plan, err);
    if (r == 0)
        r = engine_run(engine, &plan, &watch, &result, err);
    struct signalfd_siginfo caught = {0};
    if (read(signal_fd, &caught, sizeof(caught)) < 0)
        caught.ssi_signo = 0;
    int status;
    if (r < 0) {
        status = cli_fail("run", err);
        /* An unsupported host is not a result of the run. */
        if (args->json && err->code != ERR_UNSUPPORTED &&
            err_table[err->code].exit_status == EXIT_HERMES)
            output_json(result_json_error(&result, err), RESULT_JSON_FLAGS);
    } else if (args->json) {
        output_json(result_json(&result, args->base64 ? ENCODE_BASE64 : ENCODE_UTF8),
            RESULT_JSON_FLAGS);
        status = run_exit_status(&result, (int)caught.ssi_signo);
    } else if (output_error < 0) {
        status = output_fail(table.command, -output_error);
    } else {
        tell(&result);
        status = run_exit_status(&result, (int)caught.ssi_signo);
        if (result.files.count && save_files(args, &result.files, err) < 0)
            status = err_table[err->code].exit_status;
    }
    return output_end(table.command, status);
}

static int run_all(struct run_args *args, struct err *err)
{
    struct engine *engine = NULL;
    cleanup_close int signal_fd = cli_catch_signals();
    int r = engine_start(&engine, &args->engine, err);
    if (r == 0)
        r = prepare(args, &args->registry, err);
    if (r == 0 && !args->spec.runtime->available)
        r = err_set(err, ERR_UNAVAILABLE, ENOENT, "%s", args->spec.runtime->missing);
    args->engine.runtimes = &args->registry;
    if (r == 0 && !args->no_cache && (r = cache_settings_read(&args->engine.cache, err)) == 0)
        args->spec.cache_scope = xasprintf("uid %u", geteuid());
    if (r == 0)
        r = engine_register(engine, &args->engine, err);
    return r < 0 ? cli_fail("run", err) : run_prepared(args, engine, signal_fd, err);
}

int cmd_run(int argc, char **argv)
{
    struct run_args args = {
        .engine = {.min_level = LEVEL_STRONG, .state_dir = getenv("HERMES_STATE_DIR")}};
    run_spec_init(&args.spec);
    limits_maxima(&args.engine.maxima);
    options_parse(&table, argc, argv, take_option, &args);
    if (!args.file)
        options_misuse(table.command, "which FILE? `-` reads the code from stdin");
    struct err err = {0};
    int status = run_all(&args, &err);
    /* Free nothing: the caller waits for our end, and Linux frees memory faster. */
    _exit(status);
}
