// Puts and gets many small blobs with one of the peers, as `StoreBench small` does, and prints the same JSON.
// usage: peers files|sqlite|lmdb|rocksdb BLOBS FOLDER relaxed|durable THREADS
#include <fcntl.h>
#include <lmdb.h>
#include <rocksdb/db.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using std::string;

[[noreturn]] static void fail(const string& what) {
  std::fprintf(stderr, "peers: %s\n", what.c_str());
  std::exit(1);
}

static void require(bool condition, const char* what) {
  if (!condition) fail(string(what) + ": " + std::strerror(errno));
}

struct Engine {
  virtual ~Engine() = default;
  virtual void put(const string& key, const string& value) = 0;
  virtual void get(const string& key, string& value) = 0;
};

// A file each: written under another name and renamed; durable: file and folder are synced.
struct Files : Engine {
  int directory;
  bool durable;
  Files(const string& folder, bool durable) : durable(durable) {
    directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
    require(directory >= 0, "open the folder");
  }
  ~Files() override { ::close(directory); }
  void put(const string& key, const string& value) override {
    string temporary = key + ".new";
    int file = openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
    require(file >= 0, "create a file");
    require(write(file, value.data(), value.size()) == (ssize_t)value.size(), "write");
    if (durable) require(fdatasync(file) == 0, "sync");
    ::close(file);
    require(renameat(directory, temporary.c_str(), directory, key.c_str()) == 0, "rename");
    if (durable) require(fsync(directory) == 0, "sync the folder");
  }
  void get(const string& key, string& value) override {
    int file = openat(directory, key.c_str(), O_RDONLY);
    struct stat status;
    require(file >= 0 && fstat(file, &status) == 0, "open a file");
    value.resize(status.st_size);
    require(read(file, value.data(), value.size()) == (ssize_t)value.size(), "read");
    ::close(file);
  }
};

// Blobs in a table; WAL; durable: synchronous=full, relaxed: normal. Threads share a connection: with one each, they
// sleep while another writes, and all are slower than one.
struct SQLite : Engine {
  sqlite3* database = nullptr;
  sqlite3_stmt *insert = nullptr, *select = nullptr;
  std::mutex mutex;
  void check(int code) {
    if (code != SQLITE_OK && code != SQLITE_DONE && code != SQLITE_ROW) fail(sqlite3_errmsg(database));
  }
  SQLite(const string& folder, bool durable) {
    check(sqlite3_open((folder + "/blobs.sqlite").c_str(), &database));
    string text = "PRAGMA journal_mode=WAL; PRAGMA synchronous=" + string(durable ? "FULL" : "NORMAL");
    text += "; CREATE TABLE IF NOT EXISTS blobs (key TEXT PRIMARY KEY, value BLOB)";
    check(sqlite3_exec(database, text.c_str(), nullptr, nullptr, nullptr));
    check(sqlite3_prepare_v2(database, "REPLACE INTO blobs VALUES (?, ?)", -1, &insert, nullptr));
    check(sqlite3_prepare_v2(database, "SELECT value FROM blobs WHERE key = ?", -1, &select, nullptr));
  }
  ~SQLite() override {
    sqlite3_finalize(insert);
    sqlite3_finalize(select);
    check(sqlite3_close(database));
  }
  void put(const string& key, const string& value) override {
    std::lock_guard<std::mutex> lock(mutex);
    sqlite3_bind_text(insert, 1, key.data(), key.size(), SQLITE_STATIC);
    sqlite3_bind_blob(insert, 2, value.data(), value.size(), SQLITE_STATIC);
    check(sqlite3_step(insert));
    check(sqlite3_reset(insert));
  }
  void get(const string& key, string& value) override {
    sqlite3_bind_text(select, 1, key.data(), key.size(), SQLITE_STATIC);
    check(sqlite3_step(select));
    value.assign((const char*)sqlite3_column_blob(select, 0), sqlite3_column_bytes(select, 0));
    check(sqlite3_reset(select));
  }
};

// Durable: each transaction synced, as it is by default; relaxed: none.
struct LMDB : Engine {
  MDB_env* environment = nullptr;
  MDB_dbi table = 0;
  static void check(int code) {
    if (code != 0) fail(mdb_strerror(code));
  }
  template <typename Body>
  void transact(unsigned flags, Body body) {
    MDB_txn* transaction;
    check(mdb_txn_begin(environment, nullptr, flags, &transaction));
    body(transaction);
    check(mdb_txn_commit(transaction));
  }
  LMDB(const string& folder, bool durable) {
    check(mdb_env_create(&environment));
    check(mdb_env_set_mapsize(environment, 8ull << 30));
    check(mdb_env_open(environment, folder.c_str(), durable ? 0 : MDB_NOSYNC, 0644));
    transact(0, [&](MDB_txn* transaction) { check(mdb_dbi_open(transaction, nullptr, MDB_CREATE, &table)); });
  }
  ~LMDB() override { mdb_env_close(environment); }
  void put(const string& key, const string& value) override {
    MDB_val k{key.size(), (void*)key.data()}, v{value.size(), (void*)value.data()};
    transact(0, [&](MDB_txn* transaction) { check(mdb_put(transaction, table, &k, &v, 0)); });
  }
  void get(const string& key, string& value) override {
    MDB_val k{key.size(), (void*)key.data()}, v;
    transact(MDB_RDONLY, [&](MDB_txn* transaction) {
      check(mdb_get(transaction, table, &k, &v));
      value.assign((const char*)v.mv_data, v.mv_size);
    });
  }
};

struct RocksDB : Engine {
  rocksdb::WriteOptions writing;
  rocksdb::DB* database = nullptr;
  static void check(const rocksdb::Status& status) {
    if (!status.ok()) fail(status.ToString());
  }
  RocksDB(const string& folder, bool durable) {
    writing.sync = durable;
    rocksdb::Options options;
    options.create_if_missing = true;
    check(rocksdb::DB::Open(options, folder, &database));
  }
  ~RocksDB() override { delete database; }
  void put(const string& key, const string& value) override { check(database->Put(writing, key, value)); }
  void get(const string& key, string& value) override { check(database->Get(rocksdb::ReadOptions(), key, &value)); }
};

static std::unique_ptr<Engine> opened(const string& kind, const string& folder, bool durable) {
  if (kind == "files") return std::make_unique<Files>(folder, durable);
  if (kind == "sqlite") return std::make_unique<SQLite>(folder, durable);
  if (kind == "lmdb") return std::make_unique<LMDB>(folder, durable);
  if (kind == "rocksdb") return std::make_unique<RocksDB>(folder, durable);
  fail("there is no engine " + kind);
}

template <typename Body>
static double timed(Body body) {
  auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

static string list(const std::vector<double>& seconds) {
  string text;
  for (double one : seconds) text += (text.empty() ? "" : ", ") + std::to_string(one * 1e6);
  return "[" + text + "]";
}

int main(int count, char** words) {
  if (count != 6) fail("usage: peers ENGINE BLOBS FOLDER relaxed|durable THREADS");
  string kind = words[1], folder = words[3];
  bool durable = string(words[4]) == "durable";
  size_t threadCount = std::atoi(words[5]);
  std::ifstream lines(string(words[2]) + "/order");
  std::vector<string> order(std::istream_iterator<string>(lines), {});
  std::map<string, string> blobs;
  for (const string& name : order) {
    std::ifstream file(string(words[2]) + "/" + name, std::ios::binary);
    if (!file) fail("cannot read " + name);
    blobs[name] = {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::pair<string, string>> sorted(blobs.begin(), blobs.end());
  mkdir(folder.c_str(), 0755);

  auto engine = opened(kind, folder, durable);
  std::vector<std::vector<double>> each(threadCount);
  double putSeconds = timed([&] {
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < threadCount; thread++)
      threads.emplace_back([&, thread] {
        for (size_t index = thread; index < sorted.size(); index += threadCount)
          each[thread].push_back(timed([&] { engine->put(sorted[index].first, sorted[index].second); }));
      });
    for (auto& thread : threads) thread.join();
  });
  engine.reset();
  std::vector<double> puts, gets;
  for (auto& one : each) puts.insert(puts.end(), one.begin(), one.end());
  engine = opened(kind, folder, durable);
  for (const string& key : order) {
    // A buffer of its own for each, as a cache hands it out.
    string value;
    gets.push_back(timed([&] { engine->get(key, value); }));
    if (value != blobs[key]) fail("what was got is not what was put");
  }
  std::printf("{\"put\": %s, \"get\": %s, \"putSeconds\": %.6f}\n", list(puts).c_str(), list(gets).c_str(), putSeconds);
}
