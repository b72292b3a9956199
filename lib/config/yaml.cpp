#include "config/yaml.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_map>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "base/utf8.h"

namespace dltrain {
namespace {

// The event handler throws this when a limit is exceeded, after it has reported the problem.
struct ParsingAborted {};

// Converts yaml-cpp's positions (line and byte column in the part that it reads) to places.
class Positions {
 public:
  Positions(std::shared_ptr<const Source> source, size_t begin) : source_(std::move(source)) {
    lines_.push_back(begin);
    const std::string& text = source_->text;
    for (size_t at = begin; at < text.size(); ++at) {
      if (text[at] == '\n') lines_.push_back(at + 1);
    }
  }

  size_t offset(const YAML::Mark& mark) const {
    const std::string& text = source_->text;
    if (mark.is_null()) return lines_[0];
    const auto line = static_cast<size_t>(std::max(mark.line, 0));
    if (line >= lines_.size()) return text.size();
    return std::min(lines_[line] + static_cast<size_t>(std::max(mark.column, 0)), text.size());
  }

  SourceLocation location(const YAML::Mark& mark, std::string_view scalar = {}) const {
    SourceLocation location;
    location.source = source_;
    location.offset = offset(mark);
    location.length = token_length(location.offset, scalar);
    return location;
  }

  // Returns the offset of a tab in the indentation of a line up to `last`, or npos.
  size_t tab_indent(size_t last) const {
    const std::string& text = source_->text;
    for (size_t line = std::min(last + 1, lines_.size()); line-- > 0;) {
      size_t at = lines_[line];
      while (at < text.size() && text[at] == ' ') ++at;
      if (at < text.size() && text[at] == '\t') return at;
      if (line + 2 < last) break;
    }
    return std::string::npos;
  }

  // Returns whether the quoted scalar at `offset`, if there is one, has an end.
  bool closes_quote(size_t offset) const { return quote_end(offset) != std::string::npos; }

 private:
  // Returns the end of the quoted scalar at `offset`, npos without an end, `offset` without quotes.
  size_t quote_end(size_t offset) const {
    const std::string& text = source_->text;
    const char quote = offset < text.size() ? text[offset] : '\0';
    if (quote != '"' && quote != '\'') return offset;
    for (size_t at = offset + 1; at < text.size(); ++at) {
      if (quote == '"' && text[at] == '\\') {
        ++at;
      } else if (text[at] == quote) {
        if (quote == '"' || at + 1 >= text.size() || text[at + 1] != quote) return at + 1;
        ++at;  // '' is an escaped quote
      }
    }
    return std::string::npos;
  }

  // Returns the number of bytes of the scalar at `offset` in its line.
  size_t token_length(size_t offset, std::string_view scalar) const {
    const std::string_view rest = std::string_view(source_->text).substr(offset);
    if (rest.empty()) return 1;
    if (rest[0] == '"' || rest[0] == '\'') {
      return std::min({quote_end(offset) - offset, rest.find('\n'), rest.size()});
    }
    if (rest[0] == '*' || rest[0] == '&') {
      return std::max<size_t>(1, std::min(rest.find_first_of(" ,]}\r\t\n"), rest.size()));
    }
    return !scalar.empty() && rest.starts_with(scalar) ? scalar.size() : 1;
  }

  std::shared_ptr<const Source> source_;
  std::vector<size_t> lines_;  // byte offset of each line
};

// Builds the tree from yaml-cpp's events with a stack of open lists and maps.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const Positions& positions, Diagnostics& diagnostics)
      : positions_(positions), diagnostics_(diagnostics) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      diagnostics_.add(positions_.location(mark), "a second document; a file must have only one");
      throw ParsingAborted{};
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    ConfigNode node;
    node.location = positions_.location(mark);
    const std::string_view rest =
        std::string_view(node.location.source->text).substr(node.location.offset, 4);
    const bool written = !rest.empty() && (rest[0] == '~' || rest[0] == 'n' || rest[0] == 'N');
    if (!written && !open_.empty() && open_.back().key) node.location = open_.back().key->location;
    if (written && rest[0] != '~') node.location.length = rest.size();
    count(1, node.location);
    finish(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      diagnostics_.add(positions_.location(mark), "an alias inside the value that it refers to");
      throw ParsingAborted{};
    }
    const SourceLocation location = positions_.location(mark);
    count(found->second.nodes, location);
    ConfigNode copy = found->second.node;
    copy.location = location;
    finish(std::move(copy), 0, found->second.nodes);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    ConfigNode node = ConfigNode::make_scalar(value, positions_.location(mark, value));
    count(1, node.location);
    if (tag == "!" || tag == "tag:yaml.org,2002:str") {
      node.style = ConfigNode::Style::quoted;
      if (!positions_.closes_quote(node.location.offset)) {  // yaml-cpp takes the end of the text
        diagnostics_.add(node.location, "the closing quote is missing");
      }
    } else {
      check_tag(tag, node.location);
    }
    finish(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(ConfigNode::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(ConfigNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

  ConfigNode take() { return std::move(root_); }

 private:
  struct OpenNode {
    ConfigNode node;
    YAML::anchor_t anchor = 0;
    std::optional<ConfigNode::Key> key;  // of a map: the key whose value follows
    bool merge_key = false;              // it is `<<`
    bool expects_value = false;          // a key was read, even an invalid one
    std::unordered_map<std::string, SourceLocation> seen;
    std::vector<ConfigNode> merged;  // values of `<<`
    size_t nodes = 1;
  };
  struct AnchoredNode {
    ConfigNode node;
    size_t nodes;
  };

  void count(size_t nodes, const SourceLocation& location) {
    nodes_ += nodes;
    if (nodes_ <= YamlLimits::kNodes) return;
    diagnostics_.add(location, "more than {} values (aliases expanded)", YamlLimits::kNodes);
    throw ParsingAborted{};
  }

  void check_tag(const std::string& tag, const SourceLocation& location) {
    if (tag.empty() || tag == "?") return;
    diagnostics_.add(location, "tags such as '{}' are not supported", tag);
  }

  void open(ConfigNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    OpenNode opened;
    opened.node.kind = kind;
    opened.node.location = positions_.location(mark);
    count(1, opened.node.location);
    opened.anchor = anchor;
    check_tag(tag == "!" ? "" : tag, opened.node.location);
    if (open_.size() >= YamlLimits::kDepth) {
      diagnostics_.add(opened.node.location, "maps and lists nested deeper than {}",
                       YamlLimits::kDepth);
      throw ParsingAborted{};
    }
    open_.push_back(std::move(opened));
  }

  void close() {
    OpenNode closed = std::move(open_.back());
    open_.pop_back();
    for (ConfigNode& merged : closed.merged) {
      for (size_t i = 0; i < merged.keys.size(); ++i) {
        if (!closed.node.find(merged.keys[i].text)) {
          closed.node.set(std::move(merged.keys[i]), std::move(merged.items[i]));
        }
      }
    }
    finish(std::move(closed.node), closed.anchor, closed.nodes);
  }

  // Adds a complete value as the root, a list's item, a map's key or a map's value.
  void finish(ConfigNode node, YAML::anchor_t anchor, size_t nodes = 1) {
    if (anchor != 0) {
      count(nodes, node.location);  // the copy
      anchors_[anchor] = {node, nodes};
    }
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    parent.nodes += nodes;
    if (parent.node.is_list()) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.expects_value) {
      parent.expects_value = true;
      take_key(parent, std::move(node));
    } else {
      parent.expects_value = false;
      if (parent.key) take_value(parent, std::move(node));
    }
  }

  void take_key(OpenNode& parent, ConfigNode node) {
    parent.key.reset();
    parent.merge_key = node.text == "<<" && node.style == ConfigNode::Style::plain;
    if (diagnostics_.full()) throw ParsingAborted{};
    if (parent.node.keys.size() >= YamlLimits::kKeys) {
      diagnostics_.add(node.location, "more than {} keys in a map", YamlLimits::kKeys);
      throw ParsingAborted{};
    }
    if (!node.is_scalar()) {
      diagnostics_.add(node.location, "a key must be a word, not {}", describe_found(node));
      return;
    }
    const auto [seen, is_new] = parent.seen.emplace(node.text, node.location);
    if (!is_new) {
      diagnostics_.add(node.location, "duplicate key '{}', first given at {}", node.text,
                       to_string(seen->second));
      return;
    }
    parent.key = ConfigNode::Key{std::move(node.text), std::move(node.location)};
  }

  void take_value(OpenNode& parent, ConfigNode node) {
    if (!parent.merge_key) {
      parent.node.keys.push_back(std::move(*parent.key));
      parent.node.items.push_back(std::move(node));
    } else if (node.is_map()) {
      parent.merged.push_back(std::move(node));
    } else if (node.is_list() &&
               std::all_of(node.items.begin(), node.items.end(),
                           [](const ConfigNode& item) { return item.is_map(); })) {
      for (ConfigNode& item : node.items) parent.merged.push_back(std::move(item));
    } else {
      diagnostics_.add(node.location, "'<<' takes a map or a list of maps, not {}",
                       describe_found(node));
    }
    parent.key.reset();
  }

  const Positions& positions_;
  Diagnostics& diagnostics_;
  std::vector<OpenNode> open_;
  std::map<YAML::anchor_t, AnchoredNode> anchors_;
  ConfigNode root_;
  size_t nodes_ = 0;
  int documents_ = 0;
};

// Refuses bytes that are not UTF-8 and control characters.
bool check_characters(const std::shared_ptr<const Source>& source, size_t begin,
                      Diagnostics& diagnostics) {
  const std::string_view text = std::string_view(source->text).substr(begin);
  if (const auto bad = find_invalid_utf8(text)) {
    diagnostics.add(SourceLocation{source, begin + *bad, 1, {}}, "not UTF-8 text");
    return false;
  }
  for (size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if ((c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7F) {
      diagnostics.add(SourceLocation{source, begin + at, 1, {}},
                      "control character 0x{:02x} in the text", static_cast<unsigned>(c));
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<ConfigNode> read_yaml(std::shared_ptr<const Source> source, size_t begin,
                                    Diagnostics& diagnostics) {
  const size_t before = diagnostics.reported();
  if (source->text.size() - begin > YamlLimits::kBytes) {
    diagnostics.add(SourceLocation{source, begin, 1, {}},
                    "larger than {} bytes, the limit of configurations", YamlLimits::kBytes);
    return {};
  }
  if (!check_characters(source, begin, diagnostics)) return {};
  const Positions positions(source, begin);
  TreeBuilder builder(positions, diagnostics);
  try {
    std::istringstream stream(source->text.substr(begin));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const ParsingAborted&) {
    return {};
  } catch (const YAML::Exception& error) {
    const auto line = static_cast<size_t>(std::max(error.mark.line, 0));
    const size_t tab = positions.tab_indent(line);
    if (tab != std::string::npos) {
      diagnostics.add(SourceLocation{source, tab, 1, {}},
                      "a tab in the indentation; YAML requires spaces");
    } else {
      const size_t at = positions.offset(error.mark);  // of ${NAME} within {} or []: the brace
      const bool expands = at > begin && source->text.compare(at - 1, 2, "${") == 0;
      const bool block = error.msg == "illegal map value" || error.msg == "end of map not found";
      const bool flow = error.msg.ends_with("flow not found");
      diagnostics.add(positions.location(error.mark), "not valid YAML: {}{}", error.msg,
                      expands ? "; ${NAME} needs quotes here"
                      : flow  ? " (a bracket is missing, or a key or text with brackets needs "
                                "quotes: \"model.layers[0].rate\")"
                      : block ? " (here and in the line above, check the indentation and the "
                                "blanks after '-' and ':')"
                              : "");
    }
    return {};
  }
  if (diagnostics.reported() != before) return {};
  ConfigNode root = builder.take();
  if (!root.location.known()) root.location = SourceLocation{source, begin, 1, {}};
  return root;
}

}  // namespace dltrain
