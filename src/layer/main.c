/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-layer: reads and writes layers inside a box, with the rights of the box. It needs no
 * file of the root tree it runs in. */

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "base/strv.h"
#include "layer/input.h"
#include "layer/pack.h"
#include "layer/split.h"
#include "layer/unpack.h"
#include "layer/upon.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

/* Exit status. REFUSED: the input is at fault; FAILED: the machine is. */
enum { EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_FAILED = 3 };

static const char usage[] =
    "usage: hermes-layer pack DIR [--upon BASE] [--leave-out PATTERN]...\n"
    "       hermes-layer upon BASE PROGRAM [ARGUMENT]...\n"
    "       hermes-layer unpack DIR --max-bytes N --max-entries N\n"
    "       hermes-layer split DIR --max-bytes N --max-entries N\n"
    "\n"
    "pack writes DIR to standard output as the canonical tar of a layer. A path that\n"
    "matches a PATTERN (*, ?, [], ** for any number of directories) is left out with all\n"
    "that is in it. With --upon everything is removed from DIR first that the directory BASE\n"
    "has, too. upon copies BASE to / and executes PROGRAM. unpack reads a tar file (plain,\n"
    "gzip or zstd) from standard input into the empty directory DIR, and prints what it did\n"
    "as one line of JSON. split writes the members of an image's archive (OCI layout, docker\n"
    "save) into DIR as files 0, 1, ... and prints the list of their names as a line of JSON.\n"
    "\n"
    "Exit status: 0 done, 1 the input was refused, 2 wrong arguments, 3 the machine failed.\n";

struct arguments {
    const char *dir;
    const char *base; /* or NULL */
    struct strv leave_out;
    struct layer_limits limits;
    bool has_bytes, has_entries;
};

static int print_error(const struct err *err)
{
    (void)dprintf(STDERR_FILENO, "hermes-layer: %s\n", err->message);
    return err->code == ERR_INVALID || err->code == ERR_TOO_LARGE ? EXIT_REFUSED : EXIT_FAILED;
}

static int open_dir(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, ERR_INTERNAL, errno, "cannot open %s: %s", path, strerror(errno));
    return fd;
}

/* Small writes of headers are gathered. */
struct output {
    size_t len;
    uint8_t bytes[LAYER_PIECE];
};

static int output_flush(struct output *o)
{
    int r = fs_write_all(STDOUT_FILENO, o->bytes, o->len);
    o->len = 0;
    return r;
}

static int output_write(void *context, const void *data, size_t len)
{
    struct output *o = context;
    if (len > sizeof(o->bytes) - o->len) {
        int r = output_flush(o);
        if (r < 0)
            return r;
    }
    if (len > sizeof(o->bytes))
        return fs_write_all(STDOUT_FILENO, data, len);
    memcpy(o->bytes + o->len, data, len);
    o->len += len;
    return 0;
}

static int run_pack(const struct arguments *a)
{
    static struct output out;
    struct err err = {0};
    cleanup_close int dir_fd = open_dir(a->dir, &err);
    if (dir_fd < 0)
        return print_error(&err);
    cleanup_close int base_fd = a->base ? open_dir(a->base, &err) : -1;
    int r = !a->base ? 0 : base_fd < 0 ? base_fd : upon_subtract(dir_fd, base_fd, &err);
    if (r == 0)
        r = layer_pack(dir_fd, &a->leave_out, output_write, &out, &err);
    if (r == 0 && (r = output_flush(&out)) < 0)
        (void)err_set(&err, ERR_INTERNAL, -r, "cannot write the archive: %s", strerror(-r));
    return r < 0 ? print_error(&err) : 0;
}

static int run_unpack(const struct arguments *a)
{
    struct err err = {0};
    struct layer_report report;
    int in_fd = STDIN_FILENO;
    char digest[65];
    cleanup_close int dir_fd = open_dir(a->dir, &err);
    if (dir_fd < 0)
        return print_error(&err);
    struct layer_input *in =
        layer_input_new(layer_read_fd, &in_fd, layer_stream_max(&a->limits), &err);
    int r = layer_unpack(dir_fd, layer_input_read, in, &a->limits, &report, &err);
    if (r == 0)
        layer_input_digest(in, digest);
    layer_input_free(in);
    if (r < 0)
        return print_error(&err);
    (void)dprintf(STDOUT_FILENO,
        "{\"diff_id\":\"sha256:%s\",\"entries\":%llu,\"bytes\":%llu,\"hard_links\":%llu,"
        "\"deletions\":%llu,\"left_out\":{\"devices\":%llu,\"attributes\":%llu,"
        "\"set_ids\":%llu}}\n",
        digest, (unsigned long long)report.entries, (unsigned long long)report.bytes,
        (unsigned long long)report.hard_links, (unsigned long long)report.deletions,
        (unsigned long long)report.devices, (unsigned long long)report.attributes,
        (unsigned long long)report.set_ids);
    return 0;
}

static int run_split(const struct arguments *a)
{
    struct err err = {0};
    int in_fd = STDIN_FILENO;
    cleanup_buf struct buf list = {0};
    cleanup_close int dir_fd = open_dir(a->dir, &err);
    if (dir_fd < 0)
        return print_error(&err);
    buf_init(&list, SPLIT_LIST_MAX);
    struct layer_input *in =
        layer_input_new(layer_read_fd, &in_fd, layer_stream_max(&a->limits), &err);
    int r = layer_split(dir_fd, layer_input_read, in, &a->limits, &list, &err);
    layer_input_free(in);
    if (r == 0 && (r = fs_write_all(STDOUT_FILENO, list.data, list.len)) < 0)
        (void)err_set(&err, ERR_INTERNAL, -r, "cannot write the list: %s", strerror(-r));
    return r < 0 ? print_error(&err) : 0;
}

static int run_upon(const char *base, char **argv)
{
    struct err err = {0};
    cleanup_close int base_fd = open_dir(base, &err);
    cleanup_close int root_fd = base_fd < 0 ? -1 : open_dir("/", &err);
    if (root_fd < 0 || upon_copy(base_fd, root_fd, &err) < 0)
        return print_error(&err);
    (void)execv(argv[0], argv);
    (void)err_set(&err, ERR_INVALID, errno, "the base has no %s that can be executed: %s",
        argv[0], strerror(errno));
    return print_error(&err);
}

static bool take_option(struct arguments *a, const char *option, const char *value)
{
    if (str_eq(option, "--upon")) {
        a->base = value;
        return true;
    }
    if (str_eq(option, "--leave-out")) {
        strv_add(&a->leave_out, value);
        return true;
    }
    if (str_eq(option, "--max-bytes")) {
        a->has_bytes = true;
        return str_parse_u64(value, &a->limits.max_bytes) == 0 &&
               a->limits.max_bytes <= INT64_MAX / 2;
    }
    if (str_eq(option, "--max-entries")) {
        a->has_entries = true;
        return str_parse_u64(value, &a->limits.max_entries) == 0 &&
               a->limits.max_entries <= UINT32_MAX;
    }
    return false;
}

/* A command. Its function gets the arguments behind DIR. */
struct command {
    const char *name;
    bool has_limits;
    int (*run)(const struct arguments *a);
};

static const struct command commands[] = {
    {"pack", false, run_pack},
    {"unpack", true, run_unpack},
    {"split", true, run_split},
};

static const struct command *parse(int argc, char **argv, struct arguments *a)
{
    const struct command *c = NULL;
    for (size_t i = 0; argc >= 3 && i < sizeof(commands) / sizeof(*commands); i++) {
        if (str_eq(argv[1], commands[i].name))
            c = &commands[i];
    }
    if (!c)
        return NULL;
    a->dir = argv[2];
    for (int i = 3; i < argc; i += 2) {
        if (i + 1 == argc || !take_option(a, argv[i], argv[i + 1]))
            return NULL;
    }
    bool fits = c->has_limits
                    ? a->has_bytes && a->has_entries && a->leave_out.count == 0 && !a->base
                    : !a->has_bytes && !a->has_entries;
    return fits ? c : NULL;
}

int main(int argc, char **argv)
{
    static struct arguments a;
    (void)umask(0022);
    if (argc == 2 && str_eq(argv[1], "--help")) {
        (void)fs_write_all(STDOUT_FILENO, usage, sizeof(usage) - 1);
        return 0;
    }
    if (argc >= 4 && str_eq(argv[1], "upon"))
        return run_upon(argv[2], argv + 3);
    const struct command *c = parse(argc, argv, &a);
    if (!c) {
        (void)fs_write_all(STDERR_FILENO, usage, sizeof(usage) - 1);
        return EXIT_USAGE;
    }
    int status = c->run(&a);
    strv_done(&a.leave_out);
    return status;
}
