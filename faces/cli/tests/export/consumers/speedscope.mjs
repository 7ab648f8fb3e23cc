// speedscope.mjs FILE: checks FILE against the schema that speedscope ships, and prints each profile's sums.
//
// S1  What the schema cannot say is checked here: as many weights as samples, frames that are there,
//     endValue the sum of the weights.
import { readFileSync } from "node:fs";
import Ajv from "ajv";

const schema = JSON.parse(
  readFileSync(new URL("node_modules/speedscope/dist/release/file-format-schema.json", import.meta.url)),
);
const file = JSON.parse(readFileSync(process.argv[2]));
const validate = new Ajv({ strict: false, allowUnionTypes: true }).compile(schema);
if (!validate(file)) {
  console.error(JSON.stringify(validate.errors, null, 1));
  process.exit(1);
}
const sums = {};
for (const profile of file.profiles) {
  const sum = profile.weights.reduce((sum, weight) => sum + weight, 0);
  const whole = profile.samples.length === profile.weights.length && sum === profile.endValue;
  const known = profile.samples.flat().every((frame) => frame < file.shared.frames.length);
  if (!whole || !known) {
    console.error(`${profile.name}: ${whole ? "frames that are not there" : "weights that do not add up"}`);
    process.exit(1);
  }
  sums[profile.name] = sum;
}
process.stdout.write(JSON.stringify(sums) + "\n");
