/* SPDX-License-Identifier: Apache-2.0 */

/* What a container is made of. Everything comes from the row of the table, except that a
 * request may ask for less of a limit. */

#include "backend/docker.h"

#include "base/clock.h"
#include "base/str.h"
#include "layer/tar_write.h"

#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_HEX = 24, SHM_MAX_MB = 1024, HOME_MB = 1024 };

static void digest_text(const char *text, char ret[65])
{
    struct sha256_ctx hash;
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_init(&hash);
    sha256_update(&hash, strlen(text), (const uint8_t *)text);
    sha256_digest(&hash, sizeof(digest), digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

static void digest_json(json_t *json, char ret[65])
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    digest_text(text ? text : "", ret);
    free(text);
    json_decref(json);
}

/* One container for each key, if it is kept; else one for each session. */
void docker_names(const struct backend *b, struct docker *d)
{
    const struct place_row *row = b->row;
    const uint32_t *limit = b->request.limits.value;
    char scope[65];
    digest_json(json_pack("[s, s, b, s]", b->instance, row->name, row->keeps,
                    row->keeps ? b->request.owner : b->request.session),
        scope);
    (void)snprintf(d->name, sizeof(d->name), "hermes-%.*s", NAME_HEX, scope);
    digest_json(json_pack("[s, s, s, s, s, b, i, i, i, i]", row->image, row->runtime,
                    row->network, row->volumes, row->user, row->keeps, limit[PLACE_CPUS],
                    limit[PLACE_MEMORY], limit[PLACE_PROCESSES], limit[PLACE_DISK]),
        d->hash);
}

const char *docker_label(const json_t *labels, const char *name)
{
    const char *value = json_string_value(json_object_get(labels, name));
    return value ? value : "";
}

bool docker_is_ours(const struct backend *b, const json_t *labels)
{
    return str_eq(docker_label(labels, "hermes"), "1") &&
           str_eq(docker_label(labels, "hermes-owner"), b->instance) &&
           str_eq(docker_label(labels, "hermes-backend"), b->row->name);
}

static void add_tmpfs(json_t *to, const char *path, const char *options, uint32_t mb)
{
    char text[96];
    (void)snprintf(text, sizeof(text), "rw,nosuid,nodev,%s,size=%um", options, mb);
    (void)json_object_set_new(to, path, json_string(text));
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a && a < b ? a : b;
}

static json_t *tmpfs_of(const struct backend *b, enum docker_disk disk)
{
    json_t *json = json_object();
    uint32_t mb = disk == DISK_FREE ? 0 : b->request.limits.value[PLACE_DISK];
    add_tmpfs(json, "/tmp", "exec,mode=1777", least(mb, 512));
    add_tmpfs(json, "/var/tmp", "noexec,mode=1777", least(mb, 256));
    add_tmpfs(json, "/run", "noexec,mode=755", least(mb, 64));
    if (disk == DISK_TMPFS) {
        add_tmpfs(json, "/workspace", "exec,mode=1777", mb);
        add_tmpfs(json, "/root", "exec,mode=700", least(mb, HOME_MB));
        add_tmpfs(json, "/home", "exec,mode=755", least(mb, HOME_MB));
    }
    return json;
}

static json_t *list_of(const char *text)
{
    json_t *list = json_array();
    char *copy = strdup(text);
    for (char *at = copy, *item; copy && (item = strsep(&at, ", "));)
        if (item[0])
            (void)json_array_append_new(list, json_string(item));
    free(copy);
    return list;
}

/* Podman sets limits that a root without CAP_SYS_RESOURCE may not raise. */
static json_t *ulimits(void)
{
    return json_pack("[{s:s, s:i, s:i}, {s:s, s:i, s:i}]", "Name", "nofile", "Soft", 4096,
        "Hard", 4096, "Name", "nproc", "Soft", 4096, "Hard", 4096);
}

static json_t *host_config(
    const struct backend *b, const struct docker *d, enum docker_disk disk)
{
    const struct place_row *row = b->row;
    const uint32_t *limit = b->request.limits.value;
    json_int_t memory = (json_int_t)limit[PLACE_MEMORY] << 20;
    json_t *json = json_pack(
        "{s:I, s:I, s:I, s:I, s:[s], s:[s, s, s, s, s], s:[s], s:o, s:I, s:b, s:b, s:s, s:b, "
        "s:s, s:{s:s}, s:{s:s}, s:o}",
        "Memory", memory, "MemorySwap", memory, "NanoCpus",
        (json_int_t)limit[PLACE_CPUS] * 1000000, "PidsLimit",
        (json_int_t)limit[PLACE_PROCESSES], "CapDrop", "ALL", "CapAdd", "DAC_OVERRIDE", "CHOWN",
        "FOWNER", "SETUID", "SETGID", "SecurityOpt", "no-new-privileges", "Tmpfs",
        tmpfs_of(b, disk), "ShmSize",
        (json_int_t)least(limit[PLACE_MEMORY] / 2, SHM_MAX_MB) << 20, "Init", 1, "Privileged",
        0, "NetworkMode", row->network, "ReadonlyRootfs", disk == DISK_TMPFS, "IpcMode",
        "private", "RestartPolicy", "Name", "no", "LogConfig", "Type", "none", "Binds",
        list_of(row->volumes));
    if (row->runtime[0])
        (void)json_object_set_new(json, "Runtime", json_string(row->runtime));
    if (d->engine.is_podman)
        (void)json_object_set_new(json, "Ulimits", ulimits());
    if (disk == DISK_QUOTA) {
        char size[24];
        (void)snprintf(size, sizeof(size), "%um", limit[PLACE_DISK]);
        (void)json_object_set_new(json, "StorageOpt", json_pack("{s:s}", "size", size));
    }
    return json;
}

/* No output of a container is kept by the engine: it would fill the disk of its machine. */
json_t *docker_config(const struct backend *b, const struct docker *d, enum docker_disk disk)
{
    const struct place_row *row = b->row;
    char lease[24];
    (void)snprintf(lease, sizeof(lease), "%lld", (long long)(clock_wall_ms() / 1000));
    return json_pack(
        "{s:s, s:s, s:[s], s:[s], s:s, s:b, s:b, s:{s:[s]}, s:{s:s, s:s, s:s, s:s, s:s, s:s}, "
        "s:o}",
        "Image", row->image, "User", row->user, "Entrypoint", "sleep", "Cmd", "2147483647",
        "WorkingDir", "/", "OpenStdin", 0, "Tty", 0, "Healthcheck", "Test", "NONE", "Labels",
        "hermes", "1", "hermes-owner", b->instance, "hermes-backend", row->name,
        "hermes-config", d->hash, "hermes-lease", lease, "hermes-keep",
        row->keeps ? "yes" : "no", "HostConfig", host_config(b, d, disk));
}

static bool is_number(const json_t *from, const char *name, uint64_t value)
{
    const json_t *number = json_object_get(from, name);
    return json_is_integer(number) && value && (uint64_t)json_integer_value(number) == value;
}

static bool has_volume(const json_t *container)
{
    const json_t *mounts = json_object_get(container, "Mounts");
    for (size_t i = 0; i < json_array_size(mounts); i++) {
        const char *type =
            json_string_value(json_object_get(json_array_get(mounts, i), "Type"));
        if (type && str_eq(type, "volume"))
            return true;
    }
    return false;
}

/* An engine that cannot enforce a limit drops it and says so only here. */
uint32_t docker_in_force(const struct backend *b, const json_t *container)
{
    const json_t *host = json_object_get(container, "HostConfig");
    const uint32_t *limit = b->request.limits.value;
    uint64_t cpus = limit[PLACE_CPUS];
    bool has_cpus =
        is_number(host, "NanoCpus", cpus * 1000000) ||
        (is_number(host, "CpuPeriod", 100000) && is_number(host, "CpuQuota", cpus * 100));
    bool has_quota = json_object_get(json_object_get(host, "StorageOpt"), "size");
    bool is_in_memory = json_is_true(json_object_get(host, "ReadonlyRootfs"));
    uint32_t bits = 0;
    if (has_cpus)
        bits |= 1u << PLACE_CPUS;
    if (is_number(host, "Memory", (uint64_t)limit[PLACE_MEMORY] << 20))
        bits |= 1u << PLACE_MEMORY;
    if (is_number(host, "PidsLimit", limit[PLACE_PROCESSES]))
        bits |= 1u << PLACE_PROCESSES;
    if ((has_quota || is_in_memory) && !has_volume(container))
        bits |= 1u << PLACE_DISK;
    return bits;
}

static bool is_text(const json_t *from, const char *name, const char *value)
{
    const char *text = json_string_value(json_object_get(from, name));
    return text && str_eq(text, value);
}

/* Podman takes a runtime that it does not have, and uses another. */
bool docker_is_isolated(const struct backend *b, const json_t *container)
{
    const struct place_row *row = b->row;
    const json_t *host = json_object_get(container, "HostConfig");
    bool has_runtime =
        !row->runtime[0] || is_text(container, "OCIRuntime", row->runtime) ||
        (!json_object_get(container, "OCIRuntime") && is_text(host, "Runtime", row->runtime));
    return has_runtime && is_text(host, "NetworkMode", row->network) &&
           json_is_false(json_object_get(host, "Privileged"));
}

static int append(void *context, const void *data, size_t len)
{
    return buf_append(context, data, len);
}

int docker_archive(const struct backend *b, struct buf *to)
{
    struct tar_writer w = {append, to};
    char path[96];
    backend_shell_path(b, path, sizeof(path));
    int r = tar_put_header(&w, TAR_DIRECTORY, "workspace/", NULL, 0, 01777);
    if (r == 0)
        r = tar_put_header(&w, TAR_DIRECTORY, ".hermes/", NULL, 0, 0755);
    if (r == 0)
        r = tar_put_header(&w, TAR_FILE, path + 1, NULL, b->shell_len, 0755);
    if (r == 0)
        r = tar_put_data(&w, b->shell, b->shell_len);
    if (r == 0)
        r = tar_put_pad(&w, b->shell_len);
    return r < 0 ? r : tar_put_end(&w);
}
