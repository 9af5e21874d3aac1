// Puts and gets many small blobs with one of the peers, as `StoreBench images` does, and prints the same JSON.
// Also `pread`: random 64 KiB of a file. Build: see peers.py.
//
// usage: small_peers ENGINE LIST ORDER FOLDER relaxed|durable
//        small_peers pread FILE COUNT
#include <fcntl.h>
#include <lmdb.h>
#include <rocksdb/db.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

[[noreturn]] static void fail(const std::string& what) {
  std::fprintf(stderr, "small_peers: %s\n", what.c_str());
  std::exit(1);
}

static void require(bool condition, const char* what) {
  if (!condition) fail(std::string(what) + ": " + std::strerror(errno));
}

static std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot read " + path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

static std::vector<std::string> lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("cannot read " + path);
  std::vector<std::string> all;
  for (std::string line; std::getline(file, line);) all.push_back(line);
  return all;
}

static std::string name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

struct Engine {
  virtual ~Engine() = default;
  virtual void open() = 0;
  virtual void close() = 0;
  virtual void put(const std::string& key, const std::string& value) = 0;
  virtual void get(const std::string& key, std::string& value) = 0;
};

// A file each: written under another name and renamed; durable: file and folder are synced.
struct Files : Engine {
  std::string folder;
  bool durable;
  int directory = -1;
  Files(std::string folder, bool durable) : folder(std::move(folder)), durable(durable) {}
  void open() override {
    directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
    require(directory >= 0, "open the folder");
  }
  void close() override { ::close(directory); }
  void put(const std::string& key, const std::string& value) override {
    std::string temporary = key + ".new";
    int file = openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
    require(file >= 0, "create a file");
    require(write(file, value.data(), value.size()) == (ssize_t)value.size(), "write");
    if (durable) require(fdatasync(file) == 0, "sync");
    ::close(file);
    require(renameat(directory, temporary.c_str(), directory, key.c_str()) == 0, "rename");
    if (durable) require(fsync(directory) == 0, "sync the folder");
  }
  void get(const std::string& key, std::string& value) override {
    int file = openat(directory, key.c_str(), O_RDONLY);
    require(file >= 0, "open a file");
    struct stat status;
    require(fstat(file, &status) == 0, "status");
    value.resize(status.st_size);
    require(read(file, value.data(), value.size()) == (ssize_t)value.size(), "read");
    ::close(file);
  }
};

// One file that only grows, with the places in memory: the limit, no store.
struct Append : Files {
  int file = -1;
  off_t end = 0;
  std::vector<std::pair<std::string, std::pair<off_t, size_t>>> places;
  Append(std::string folder, bool durable) : Files(std::move(folder), durable) {}
  void open() override {
    file = ::open((folder + "/log").c_str(), O_RDWR | O_CREAT, 0644);
    require(file >= 0, "create the file");
    std::sort(places.begin(), places.end());
  }
  void close() override { ::close(file); }
  void put(const std::string& key, const std::string& value) override {
    require(pwrite(file, value.data(), value.size(), end) == (ssize_t)value.size(), "write");
    if (durable) require(fdatasync(file) == 0, "sync");
    places.push_back({key, {end, value.size()}});
    end += value.size();
  }
  void get(const std::string& key, std::string& value) override {
    auto found = std::lower_bound(places.begin(), places.end(), std::make_pair(key, std::make_pair(off_t(0), size_t(0))));
    value.resize(found->second.second);
    require(pread(file, value.data(), value.size(), found->second.first) == (ssize_t)value.size(), "read");
  }
};

// Blobs in a table; WAL; durable: synchronous=full, relaxed: normal.
struct SQLite : Engine {
  std::string folder;
  bool durable;
  sqlite3* database = nullptr;
  sqlite3_stmt* insert = nullptr;
  sqlite3_stmt* select = nullptr;
  SQLite(std::string folder, bool durable) : folder(std::move(folder)), durable(durable) {}
  void check(int code) {
    if (code != SQLITE_OK && code != SQLITE_DONE && code != SQLITE_ROW) fail(sqlite3_errmsg(database));
  }
  void execute(const char* text) { check(sqlite3_exec(database, text, nullptr, nullptr, nullptr)); }
  void open() override {
    check(sqlite3_open((folder + "/blobs.sqlite").c_str(), &database));
    execute("PRAGMA journal_mode=WAL");
    execute(durable ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
    execute("CREATE TABLE IF NOT EXISTS blobs (key TEXT PRIMARY KEY, value BLOB)");
    check(sqlite3_prepare_v2(database, "REPLACE INTO blobs VALUES (?, ?)", -1, &insert, nullptr));
    check(sqlite3_prepare_v2(database, "SELECT value FROM blobs WHERE key = ?", -1, &select, nullptr));
  }
  void close() override {
    sqlite3_finalize(insert);
    sqlite3_finalize(select);
    check(sqlite3_close(database));
  }
  void put(const std::string& key, const std::string& value) override {
    sqlite3_bind_text(insert, 1, key.data(), key.size(), SQLITE_STATIC);
    sqlite3_bind_blob(insert, 2, value.data(), value.size(), SQLITE_STATIC);
    check(sqlite3_step(insert));
    check(sqlite3_reset(insert));
  }
  void get(const std::string& key, std::string& value) override {
    sqlite3_bind_text(select, 1, key.data(), key.size(), SQLITE_STATIC);
    check(sqlite3_step(select));
    value.assign((const char*)sqlite3_column_blob(select, 0), sqlite3_column_bytes(select, 0));
    check(sqlite3_reset(select));
  }
};

// Durable: each transaction synced, as it is by default; relaxed: none.
struct LMDB : Engine {
  std::string folder;
  bool durable;
  MDB_env* environment = nullptr;
  MDB_dbi table = 0;
  LMDB(std::string folder, bool durable) : folder(std::move(folder)), durable(durable) {}
  void check(int code) {
    if (code != 0) fail(mdb_strerror(code));
  }
  void open() override {
    check(mdb_env_create(&environment));
    check(mdb_env_set_mapsize(environment, 8ull << 30));
    check(mdb_env_open(environment, folder.c_str(), durable ? 0 : MDB_NOSYNC, 0644));
    MDB_txn* transaction;
    check(mdb_txn_begin(environment, nullptr, 0, &transaction));
    check(mdb_dbi_open(transaction, nullptr, MDB_CREATE, &table));
    check(mdb_txn_commit(transaction));
  }
  void close() override { mdb_env_close(environment); }
  void put(const std::string& key, const std::string& value) override {
    MDB_txn* transaction;
    check(mdb_txn_begin(environment, nullptr, 0, &transaction));
    MDB_val k{key.size(), (void*)key.data()}, v{value.size(), (void*)value.data()};
    check(mdb_put(transaction, table, &k, &v, 0));
    check(mdb_txn_commit(transaction));
  }
  void get(const std::string& key, std::string& value) override {
    MDB_txn* transaction;
    check(mdb_txn_begin(environment, nullptr, MDB_RDONLY, &transaction));
    MDB_val k{key.size(), (void*)key.data()}, v;
    check(mdb_get(transaction, table, &k, &v));
    value.assign((const char*)v.mv_data, v.mv_size);
    mdb_txn_abort(transaction);
  }
};

struct RocksDB : Engine {
  std::string folder;
  rocksdb::WriteOptions writing;
  std::unique_ptr<rocksdb::DB> database;
  RocksDB(std::string folder, bool durable) : folder(std::move(folder)) { writing.sync = durable; }
  void check(const rocksdb::Status& status) {
    if (!status.ok()) fail(status.ToString());
  }
  void open() override {
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::DB* opened = nullptr;
    check(rocksdb::DB::Open(options, folder, &opened));
    database.reset(opened);
  }
  void close() override {
    check(database->Close());
    database.reset();
  }
  void put(const std::string& key, const std::string& value) override { check(database->Put(writing, key, value)); }
  void get(const std::string& key, std::string& value) override {
    check(database->Get(rocksdb::ReadOptions(), key, &value));
  }
};

static double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

static std::string summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  double sum = 0;
  for (double one : seconds) sum += one;
  char text[200];
  std::snprintf(
      text, sizeof text, "{\"median\": %.3f, \"p99\": %.3f, \"mean\": %.3f}", seconds[seconds.size() / 2] * 1e6,
      seconds[seconds.size() * 99 / 100] * 1e6, sum / seconds.size() * 1e6);
  return text;
}

static void randomReads(const std::string& path, int count) {
  int file = ::open(path.c_str(), O_RDONLY);
  require(file >= 0, "open the file");
  struct stat status;
  require(fstat(file, &status) == 0, "status");
  std::vector<char> bytes(64 << 10);
  for (off_t at = 0; pread(file, bytes.data(), bytes.size(), at) > 0; at += bytes.size()) {
  }
  std::mt19937_64 numbers(1);
  std::vector<double> seconds;
  for (int turn = 0; turn < count; turn++) {
    off_t at = numbers() % (status.st_size - bytes.size());
    auto start = Clock::now();
    require(pread(file, bytes.data(), bytes.size(), at) == (ssize_t)bytes.size(), "read");
    seconds.push_back(secondsSince(start));
  }
  std::printf("{\"range\": %s}\n", summary(seconds).c_str());
}

int main(int count, char** words) {
  if (count == 4 && std::string(words[1]) == "pread") {
    randomReads(words[2], std::atoi(words[3]));
    return 0;
  }
  if (count != 6) fail("usage: small_peers ENGINE LIST ORDER FOLDER relaxed|durable");
  std::string kind = words[1], folder = words[4];
  bool durable = std::string(words[5]) == "durable";
  std::unique_ptr<Engine> engine;
  if (kind == "files") engine = std::make_unique<Files>(folder, durable);
  if (kind == "append") engine = std::make_unique<Append>(folder, durable);
  if (kind == "sqlite") engine = std::make_unique<SQLite>(folder, durable);
  if (kind == "lmdb") engine = std::make_unique<LMDB>(folder, durable);
  if (kind == "rocksdb") engine = std::make_unique<RocksDB>(folder, durable);
  if (!engine) fail("there is no engine " + kind);

  std::vector<std::pair<std::string, std::string>> images;
  size_t putByteCount = 0, gotByteCount = 0;
  for (const std::string& path : lines(words[2])) {
    images.push_back({name(path), content(path)});
    putByteCount += images.back().second.size();
  }
  std::vector<std::string> order;
  for (const std::string& path : lines(words[3])) order.push_back(name(path));
  mkdir(folder.c_str(), 0755);

  std::vector<double> puts, gets;
  engine->open();
  auto whole = Clock::now();
  for (const auto& [key, value] : images) {
    auto start = Clock::now();
    engine->put(key, value);
    puts.push_back(secondsSince(start));
  }
  double putSeconds = secondsSince(whole);
  auto closing = Clock::now();
  engine->close();
  double closeSeconds = secondsSince(closing);
  engine->open();
  for (const std::string& key : order) {
    // A buffer of its own for each, as a cache hands it out.
    std::string value;
    auto start = Clock::now();
    engine->get(key, value);
    gets.push_back(secondsSince(start));
    gotByteCount += value.size();
  }
  engine->close();
  if (gotByteCount != putByteCount) fail("what was got is not what was put");
  std::printf(
      "{\"put\": %s, \"get\": %s, \"putSeconds\": %.6f, \"closeSeconds\": %.6f, \"count\": %zu}\n",
      summary(puts).c_str(), summary(gets).c_str(), putSeconds, closeSeconds, images.size());
}
